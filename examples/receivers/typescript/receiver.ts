// Example of a webhook receiver: it verifies the signature, ignores repeated deliveries, responds and then processes.
// It needs Node.js 20 or newer and nothing else. verify.ts is the part that must be exactly so; the rest is one way to do it.
import { readFileSync } from "node:fs";
import { createServer as createPlain, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createSecure } from "node:https";
import { NotTrusted, verify } from "./verify.ts";

const MAX_BODY = 1 << 20; // bytes; the largest event is a call with its transcript, cut at 256 KiB
const MAX_QUEUE = 1000; // events that wait for work
const MAX_SEEN = 10_000; // delivery ids remembered

interface Event {
  id: string;
  type: string;
  data: { call_id: string | null }; // null in webhook.test
}

const { WEBHOOK_SECRET: secret = "", HOST: host = "127.0.0.1", PORT: port = "8443", TLS_CERT_FILE: cert, TLS_KEY_FILE: key = "" } = process.env;
const queue: Event[] = [];
const seen = new Set<string>(); // in the order they came

// accept queues an event once per delivery id and returns false when there is no room: nothing is remembered then, so the retry
// counts. Both live in memory here: store event and id in one transaction of your database and no crash loses what you answered
// 2xx to.
function accept(deliveryId: string, event: Event): boolean {
  if (seen.has(deliveryId)) {
    console.log("repeat", event.type, event.id);
    return true;
  }
  if (queue.length >= MAX_QUEUE) return false;
  if (queue.push(event) === 1) setImmediate(work);
  seen.add(deliveryId);
  if (seen.size > MAX_SEEN) {
    for (const oldest of seen) {
      seen.delete(oldest);
      break;
    }
  }
  return true;
}

// work is where your own code goes: it may take its time, the answer is long out.
function work(): void {
  const event = queue.shift();
  if (event) console.log("received", event.type, event.id, event.data.call_id ?? "");
  if (queue.length > 0) setImmediate(work);
}

// read is the whole body as it came; undefined when it says that it is too large. One that is and does not say so is cut off.
async function read(request: IncomingMessage): Promise<Buffer | undefined> {
  if (Number(request.headers["content-length"]) > MAX_BODY) return undefined;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > MAX_BODY) throw new Error("the body is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function answer(response: ServerResponse, status: number, text = ""): void {
  response.writeHead(status, status === 413 ? { Connection: "close" } : {}).end(text);
}

async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.url !== "/webhooks") return answer(response, 404, "nothing is here");
  if (request.method !== "POST") return answer(response, 405, "only POST");
  const body = await read(request);
  if (!body) return answer(response, 413, "the body is too large");
  let event: Event;
  try {
    verify(secret, String(request.headers["x-service-signature"] ?? ""), body, Date.now() / 1000);
    event = JSON.parse(body.toString()) as Event;
  } catch (fault) {
    if (fault instanceof NotTrusted || fault instanceof SyntaxError) return answer(response, 400, fault.message);
    throw fault;
  }
  if (!accept(String(request.headers["x-service-delivery-id"] ?? ""), event)) return answer(response, 503, "busy: try again");
  answer(response, 204);
}

if (!secret.startsWith("whsec_")) {
  console.error("WEBHOOK_SECRET must be the whole signing_secret, whsec_ included");
  process.exit(1);
}
const listener: RequestListener = (request, response) => {
  receive(request, response).catch(() => response.destroy()); // the sender went away; it will try again
};
const limits = { requestTimeout: 10_000, keepAliveTimeout: 120_000 }; // ms for a whole request, and between two
// Without a certificate, a proxy in front ends TLS.
const server = cert ? createSecure({ ...limits, cert: readFileSync(cert), key: readFileSync(key) }, listener) : createPlain(limits, listener);
server.listen(Number(port), host, () => {
  const address = server.address();
  const bound = typeof address === "object" && address ? address.port : port;
  console.log(`listening on ${cert ? "https" : "http"}://${host}:${bound}/webhooks`);
});
