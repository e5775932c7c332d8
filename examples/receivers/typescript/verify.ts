import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE = 300; // how many seconds the time of a signature can be before or after the current time

/** The webhook is not authentic. The message contains the reason. */
export class NotTrusted extends Error {}

/**
 * Throws NotTrusted unless the webhook is authentic. secret is the whole signing_secret with the prefix whsec_. header is the value
 * of X-Service-Signature, or "" if the header is missing. body contains the bytes of the request body as they arrived, before any
 * decoder changed them. now is Date.now() / 1000.
 */
export function verify(secret: string, header: string, body: Uint8Array, now: number): void {
  const [, signedAt, claimed] = /^t=([0-9]{1,12}),v1=([0-9a-f]{64})$/.exec(header) ?? [];
  if (signedAt === undefined || claimed === undefined) {
    throw new NotTrusted("the signature is not of the form t=<unix seconds>,v1=<64 lowercase hex digits>");
  }
  const mac = createHmac("sha256", secret).update(`${signedAt}.`).update(body).digest();
  if (!timingSafeEqual(mac, Buffer.from(claimed, "hex"))) {
    throw new NotTrusted("the signature does not match the body");
  }
  if (Math.abs(Math.floor(now) - Number(signedAt)) > TOLERANCE) {
    throw new NotTrusted("the signature's time is more than 300 s from now");
  }
}
