/* node webassembly_run.mjs MODEL.wasm IN... : inputs as files of bytes, in order, and outputs as JSON, bytes in base 64. */
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [path, ...files] = process.argv.slice(2);
const { load } = await import(pathToFileURL(join(dirname(path), "tilewright.mjs")));
const model = await load(path);
const kinds = { uint8: Uint8Array, int8: Int8Array, float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array, float16: Uint16Array };
const given = {};
for (const [k, { name, dtype }] of model.inputs.entries()) {
  const bytes = await readFile(files[k]);
  given[name] = new kinds[dtype](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}
model.run(given);  // the second run has the workspace of the first
const made = model.run(given);
const shown = Object.entries(made).map(([name, array]) => [name, Buffer.from(array.buffer).toString("base64")]);
console.log(JSON.stringify({ name: model.name, inputs: model.inputs, outputs: model.outputs, made: Object.fromEntries(shown) }));
