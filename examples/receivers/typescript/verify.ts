import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE = 300; // seconds that a signature's time may be from ours, either way

/** Why a webhook cannot be trusted. */
export class NotTrusted extends Error {}

/**
 * Throws NotTrusted unless the webhook can be trusted. The secret is the whole signing_secret, whsec_ included; header is
 * X-Service-Signature, "" when there is none; body is the request's body byte for byte as it came, before any decoder has
 * seen it; now is Date.now() / 1000.
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
