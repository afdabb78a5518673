// Names what a picture shows: a compiled model in Node.js.    node classify.mjs PICTURE.rgb    (224 x 224 pixels, three bytes each)
import { readFile } from "node:fs/promises";
import { load } from "./tilewright.mjs";

const SHOWN = 3;

const model = await load(new URL("mobilenet.wasm", import.meta.url));
const [scores] = Object.values(model.run(new Uint8Array(await readFile(process.argv[2]))));
const classes = [...scores.keys()].sort((a, b) => scores[b] - scores[a]);
for (const k of classes.slice(0, SHOWN)) console.log(`${k} ${scores[k]}`);
