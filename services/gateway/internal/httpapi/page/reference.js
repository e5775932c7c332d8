"use strict";

// The headers are the same in nearly every answer: they are shown on demand.
const headersOnDemand = () => ({
  wrapComponents: {
    headers: (Headers, { React: { createElement } }) => (props) =>
      props.headers && props.headers.size
        ? createElement("details", { className: "on-demand" }, createElement("summary", null, "Headers"), createElement(Headers, props))
        : null,
  },
});

// Swagger UI draws the description that this server sends. Nothing else is sent until a reader gives a key and presses Execute.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [headersOnDemand],
  layout: "BaseLayout",
  validatorUrl: null,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  defaultModelExpandDepth: 3,
  defaultModelRendering: "example",
  displayRequestDuration: true,
  showCommonExtensions: true,
  tryItOutEnabled: false,
  persistAuthorization: false,
  syntaxHighlight: { activated: true, theme: "idea" },
  onComplete: () => {
    // Swagger UI gives these two no id; the list of sections needs one.
    document.querySelector(".webhooks").id = "events";
    document.querySelector(".models").id = "schemas";
  },
});
