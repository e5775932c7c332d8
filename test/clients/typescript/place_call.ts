// Places a call with the generated client and prints its outcome. The test generates api.d.ts beside this file.
import createClient from "openapi-fetch";
import { setTimeout as sleep } from "node:timers/promises";
import type { components, paths } from "./api.d.ts";

type Schemas = components["schemas"];

// describe shows that the type of an event decides the type of its data.
function describe(event: Schemas["WebhookEvent"]): string {
  switch (event.type) {
    case "call_request.blocked":
      return `${event.data.id} ${event.data.error_code}`;
    case "webhook_subscription.failed":
      return `${event.data.url} ${event.data.consecutive_failures}`;
    case "webhook.test":
      return event.data.message;
    case "call.completed":
      return `${event.data.call_id} ${event.data.summary?.next_action ?? "no summary"}`;
    default:
      return event.type;
  }
}

// The compiler reports an error if a value that can be null has the type any.
export function nullable(call: Schemas["Call"], actor: Schemas["Dialing"]): void {
  // @ts-expect-error summary can be null
  call.summary.outcome;
  // @ts-expect-error set_by can be null
  actor.set_by.name;
  // @ts-expect-error the field does not exist
  call.talk_time;
}

const { BASE_URL: baseUrl = "", API_KEY: key = "", AGENT_ID: agent = "", TO: to = "" } = process.env;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

const refused = await client.POST("/v1/calls", { body: { agent_id: agent, to: "911" } });
console.log("refused", refused.response.status, refused.error?.error.code);

const created = await client.POST("/v1/calls", { body: { agent_id: agent, to, variables: { first_name: "Ada" }, contact_id: null } });
if (!created.data) throw new Error(JSON.stringify(created.error));

let request: Schemas["CallRequest"] = created.data;
while (request.status === "queued" || request.status === "dialing") {
  await sleep(200);
  const read = await client.GET("/v1/call-requests/{id}", { params: { path: { id: request.id } } });
  if (!read.data) throw new Error(JSON.stringify(read.error));
  request = read.data;
}
if (!request.call_id) throw new Error(`the request is ${request.status}: ${request.error_detail}`);

const call = await client.GET("/v1/calls/{id}", { params: { path: { id: request.call_id } } });
if (!call.data) throw new Error(JSON.stringify(call.error));
const page = await client.GET("/v1/calls", { params: { query: { call_request_id: request.id, limit: 1 } } });
console.log("listed", page.data?.data[0]?.id === call.data.call_id);
console.log("event", describe({
  id: request.id, type: "call.completed", api_version: "2026-06-04", created_at: request.created_at, workspace_id: request.id,
  sequence: 1, data: call.data,
}));
console.log("call", call.data.status, call.data.disposition, call.data.timings.talk_seconds !== null);
