"use strict";

// The headers are the same in nearly every response, so the page shows them only when the reader opens the section.
const headersOnDemand = () => ({
  wrapComponents: {
    headers: (Headers, { React: { createElement } }) => (props) =>
      props.headers && props.headers.size
        ? createElement("details", { className: "on-demand" }, createElement("summary", null, "Headers"), createElement(Headers, props))
        : null,
  },
});

// Swagger UI loads the API description from this server. It sends no other request until a reader enters a key and presses Execute.
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
    // Swagger UI sets no id on these two sections, and the links in the list of sections need ids.
    document.querySelector(".webhooks")?.setAttribute("id", "events");
    document.querySelector(".models")?.setAttribute("id", "schemas");
  },
});
