/*
 * Loads and runs models that Tilewright compiled to WebAssembly, in browsers and in Node.js. One file without dependencies.
 *
 *     import { load } from "./tilewright.mjs";
 *     const model = await load("model.wasm");                      // a URL, a path (Node.js), or the bytes
 *     model.inputs;                                                // [{ name: "input", shape: [1, 224, 224, 3], dtype: "uint8" }]
 *     const { output_0 } = model.run({ input: pixels });           // typed arrays in, typed arrays out
 *
 * `run` computes in the calling thread. A model that is to compute beside a page is loaded in a Worker.
 */

/* Element type -> the array that holds it. Floats of 16 bits are their bits, and truth values 0 or 1. */
const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, float16: Uint16Array, bfloat16: Uint16Array, float32: Float32Array, float64: Float64Array,
};
const STATUS = { 1: "there is no memory for its workspace", [-1]: "there is no memory for the scratch buffers of a kernel", [-2]: "a wrong access to memory was found" };

/* The model in a file of Tilewright: `source` is a URL or path, an ArrayBuffer, or a typed array. Throws where it is damaged, or no model. */
export async function load(source) {
  const bytes = await read(source);
  check(bytes);
  const module = await WebAssembly.compile(bytes);
  const manifest = JSON.parse(new TextDecoder().decode(WebAssembly.Module.customSections(module, "tilewright.manifest")[0]));
  const { exports } = await WebAssembly.instantiate(module, { env: mathematics() });
  return new Model(manifest, exports);
}

/* A model that is loaded. Its `inputs` and `outputs` are `{ name, shape, dtype }`, each in order. */
export class Model {
  #exports; #run; #inputs; #outputs; #pointers;

  constructor(manifest, exports) {
    const described = (all) => all.map(([name, shape, dtype]) => Object.freeze({ name, shape: Object.freeze(shape), dtype }));
    this.name = manifest.name;
    this.target = manifest.target;
    this.inputs = Object.freeze(described(manifest.inputs));
    this.outputs = Object.freeze(described(manifest.outputs));
    this.#exports = exports;
    this.#run = Object.entries(exports).find(([name]) => name.endsWith("_run"))[1];
    this.#inputs = this.inputs.map((tensor) => this.#place(tensor));
    this.#outputs = this.outputs.map((tensor) => this.#place(tensor));
    this.#pointers = this.#allocate(4 * (this.#inputs.length + this.#outputs.length));
  }

  /* The outputs by name, of inputs by name (or of one typed array, where there is one input). Each is a typed array of its own. */
  run(given) {
    const named = ArrayBuffer.isView(given) && this.inputs.length === 1 ? { [this.inputs[0].name]: given } : given;
    const unknown = Object.keys(named).find((name) => !this.inputs.some((tensor) => tensor.name === name));
    if (unknown !== undefined) throw new TypeError(`'${this.name}' has no input '${unknown}'; its inputs are ${this.inputs.map(shown).join(", ")}`);
    for (const place of this.#inputs) this.#view(place).set(checked(named[place.tensor.name], place));
    const places = [...this.#inputs, ...this.#outputs];
    new Uint32Array(this.#exports.memory.buffer, this.#pointers, places.length).set(places.map((place) => place.at));
    const status = this.#run(this.#pointers, this.#pointers + 4 * this.#inputs.length);
    if (status !== 0) throw new Error(`'${this.name}' could not run: ${STATUS[status] ?? `status ${status}`}; give it a smaller batch`);
    return Object.fromEntries(this.#outputs.map((place) => [place.tensor.name, this.#view(place).slice()]));
  }

  #place(tensor) {
    const kind = ARRAYS[tensor.dtype];
    if (kind === undefined) throw new TypeError(`${shown(tensor)}: JavaScript has no array of ${tensor.dtype}`);
    const length = tensor.shape.reduce((count, size) => count * size, 1);
    return { tensor, kind, length, at: this.#allocate(length * kind.BYTES_PER_ELEMENT) };
  }

  #view({ kind, at, length }) {
    return new kind(this.#exports.memory.buffer, at, length);  // the buffer is another one after the memory has grown
  }

  #allocate(bytes) {
    const at = this.#exports.aligned_alloc(64, Math.max(64, bytes)) >>> 0;
    if (at === 0) throw new RangeError(`there is no memory for '${this.name}': ${bytes} bytes were refused`);
    return at;
  }
}

function checked(array, { tensor, kind, length }) {
  if (array === undefined) throw new TypeError(`input ${shown(tensor)} is missing`);
  if (!(array instanceof kind)) throw new TypeError(`input ${shown(tensor)} is a ${kind.name}, and was given a ${array?.constructor?.name ?? typeof array}`);
  if (array.length !== length) throw new RangeError(`input ${shown(tensor)} has ${length} elements, and was given ${array.length}`);
  return array;
}

function shown({ name, shape, dtype }) {
  return `'${name}' ${dtype}[${shape.join(", ")}]`;
}

async function read(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  const isFile = globalThis.process?.versions?.node !== undefined && !/^(https?|data|blob):/.test(String(source));
  if (isFile) return new Uint8Array(await (await import("node:fs/promises")).readFile(source));
  const response = await fetch(source);
  if (!response.ok) throw new Error(`${source}: cannot be read: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

/* Functions of the C library for which WebAssembly has no instruction. */
function mathematics() {
  const doubles = { exp2: (x) => 2 ** x, pow: Math.pow, fmod: (x, y) => x % y };
  for (const name of ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log", "log2"]) doubles[name] = Math[name];
  const floats = Object.entries(doubles).map(([name, compute]) => [`${name}f`, (...x) => Math.fround(compute(...x))]);
  return { ...doubles, ...Object.fromEntries(floats) };
}

/* Throws unless the last section is the SHA-256 of everything before it. */
function check(bytes) {
  const name = new TextEncoder().encode("tilewright.sha256");
  const head = [0, name.length + 33, name.length, ...name];  // a custom section, its length, and its name
  const begin = bytes.length - head.length - 32;
  if (begin < 8 || head.some((byte, k) => bytes[begin + k] !== byte)) {
    throw new Error("no compiled model, or a truncated one: the mark at its end is missing; expected what was saved as .wasm");
  }
  const digest = sha256(bytes.subarray(0, begin));
  if (digest.some((byte, k) => byte !== bytes[begin + head.length + k])) {
    throw new Error("the model is damaged (its contents do not match its checksum); copy it again, or compile it again");
  }
}

/* SHA-256 (FIPS 180-4). The one of browsers is there only on pages of https. */
function sha256(bytes) {
  const state = Uint32Array.from(SQUARE_ROOTS), words = new Uint32Array(64);
  const whole = Math.floor(bytes.length / 64) * 64;
  const tail = new Uint8Array(bytes.length - whole + 9 > 64 ? 128 : 64);
  tail.set(bytes.subarray(whole));
  tail[bytes.length - whole] = 0x80;
  const count = new DataView(tail.buffer);
  count.setUint32(tail.length - 8, Math.floor(bytes.length / 0x20000000));
  count.setUint32(tail.length - 4, bytes.length << 3);
  for (let k = 0; k < whole; k += 64) block(state, words, bytes, k);
  for (let k = 0; k < tail.length; k += 64) block(state, words, tail, k);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, k) => digest.setUint32(4 * k, word));
  return new Uint8Array(digest.buffer);
}

function block(state, words, bytes, from) {
  for (let k = 0; k < 16; k++) {
    const at = from + 4 * k;
    words[k] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  }
  for (let k = 16; k < 64; k++) {
    const x = words[k - 15], y = words[k - 2];
    words[k] = words[k - 16] + words[k - 7] + (turned(x, 7) ^ turned(x, 18) ^ (x >>> 3)) + (turned(y, 17) ^ turned(y, 19) ^ (y >>> 10));
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let k = 0; k < 64; k++) {
    const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + CUBE_ROOTS[k] + words[k]) | 0;
    const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, k) => { state[k] += word; });
}

function turned(word, count) {
  return (word >>> count) | (word << (32 - count));
}

/* The first 32 bits behind the point of roots of the first primes: Math.cbrt and Math.sqrt are exact to far more. */
const PRIMES = [...Array(312).keys()].filter((n) => n > 1 && ![...Array(n).keys()].some((d) => d > 1 && n % d === 0)).slice(0, 64);
const behind = (root) => ((root - Math.floor(root)) * 0x100000000) >>> 0;
const SQUARE_ROOTS = PRIMES.slice(0, 8).map((p) => behind(Math.sqrt(p)));
const CUBE_ROOTS = Uint32Array.from(PRIMES, (p) => behind(Math.cbrt(p)));
