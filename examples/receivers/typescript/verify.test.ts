import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { NotTrusted, verify } from "./verify.ts";

interface Vector {
  name: string;
  secret: string;
  header: string;
  body: string;
  now: number;
  valid: boolean;
}

// VECTORS is the path of vectors.json when the compiled test runs in another directory.
const vectors = JSON.parse(readFileSync(process.env.VECTORS ?? "../vectors.json", "utf8")) as Vector[];

test("there are vectors", () => assert.notEqual(vectors.length, 0));
for (const { name, secret, header, body, now, valid } of vectors) {
  test(name, () => {
    const check = () => verify(secret, header, Buffer.from(body), now);
    if (valid) check();
    else assert.throws(check, NotTrusted);
  });
}
