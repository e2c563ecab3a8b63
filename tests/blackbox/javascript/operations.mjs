// Runs a list of operations of the AWS SDK for JavaScript and prints their results as JSON, one for each operation.
//
// Standard input: {endpoint, accessKeyId, secretAccessKey, client, operations: [{command, input, ...}]}.
// A string "$N.Field" in an input stands for a field of the result of operation N. `presign: true` makes a URL
// instead of sending the command. `body` is the text to send, for commands that take one.
import { createRequire } from "node:module";
import { join } from "node:path";
import { text } from "node:stream/consumers";

const require = createRequire(join(process.env.S3O_TEST_JS, "package.json"));
const sdk = require("@aws-sdk/client-s3");
const { getSignedUrl } = require("@aws-sdk/s3-request-presigner");

function resolve(value, results) {
  if (typeof value === "string" && value.startsWith("$")) {
    const [index, field] = value.slice(1).split(".");
    return results[Number(index)][field];
  }
  if (Array.isArray(value)) return value.map((item) => resolve(item, results));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolve(item, results)]));
  }
  return value;
}

async function run(client, operation, results) {
  const input = resolve(operation.input, results);
  if (operation.body !== undefined) input.Body = Buffer.from(operation.body);
  const command = new sdk[`${operation.command}Command`](input);
  if (operation.presign) return { url: await getSignedUrl(client, command, { expiresIn: operation.expires ?? 60 }) };
  try {
    const { $metadata, Body, ...fields } = await client.send(command);
    return { status: $metadata.httpStatusCode, ...fields, ...(Body ? { body: await text(Body) } : {}) };
  } catch (error) {
    return { status: error.$metadata?.httpStatusCode, code: error.name, message: error.message };
  }
}

const asked = JSON.parse(await text(process.stdin));
const { accessKeyId, secretAccessKey } = asked;
const client = new sdk.S3Client({
  endpoint: asked.endpoint,
  region: "us-east-1",
  credentials: { accessKeyId, secretAccessKey },
  forcePathStyle: true,
  maxAttempts: 1,
  ...asked.client,
});
const results = [];
for (const operation of asked.operations) results.push(await run(client, operation, results));
console.log(JSON.stringify(results));
