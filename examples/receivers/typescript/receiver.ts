// Example of a webhook receiver: it verifies the signature, ignores repeated deliveries, responds immediately and processes
// events afterwards. It needs Node.js 20 or newer and no packages. Copy verify.ts unchanged; adapt the rest.
import { readFileSync } from "node:fs";
import { createServer as createPlain, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createSecure } from "node:https";
import { NotTrusted, verify } from "./verify.ts";

const MAX_BODY = 1 << 20; // bytes; the largest event contains a call with its transcript, and a transcript has at most 256 KiB
const MAX_QUEUE = 1000; // the number of events that wait to be processed
const MAX_SEEN = 10_000; // the number of stored delivery ids

interface Event {
  id: string;
  type: string;
  data: { call_id: string | null }; // null in the event webhook.test
}

const { WEBHOOK_SECRET: secret = "", HOST: host = "127.0.0.1", PORT: port = "8443", TLS_CERT_FILE: cert, TLS_KEY_FILE: key = "" } = process.env;
const queue: Event[] = [];
const seen = new Set<string>(); // the delivery ids in the order of their arrival

// accept queues an event, but only once for each delivery id. It returns false if the queue is full. It then does not store the id,
// so that it queues the event when the sender repeats the delivery. This example keeps the queue and the ids in memory. In
// production, store the event and the id in one transaction of your database. Otherwise a crash loses events to which you have
// already responded with 2xx.
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

// work processes events. Replace it with your code, which can take any time: the response has already been sent.
function work(): void {
  const event = queue.shift();
  if (event) console.log("received", event.type, event.id, event.data.call_id ?? "");
  if (queue.length > 0) setImmediate(work);
}

// read returns the whole body as it arrived. It returns undefined if Content-Length is too large. It throws an error if a body without
// Content-Length is too large.
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
  receive(request, response).catch(() => response.destroy()); // the sender disconnected and will send the event again
};
const limits = { requestTimeout: 10_000, keepAliveTimeout: 120_000 }; // milliseconds: for a whole request, and between two requests of a connection
// Without a certificate, a proxy must terminate TLS.
const server = cert ? createSecure({ ...limits, cert: readFileSync(cert), key: readFileSync(key) }, listener) : createPlain(limits, listener);
server.listen(Number(port), host, () => {
  const address = server.address();
  const bound = typeof address === "object" && address ? address.port : port;
  console.log(`listening on ${cert ? "https" : "http"}://${host}:${bound}/webhooks`);
});
