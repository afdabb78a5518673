// Elements, numbers as people read them, and the data of the page.

const summary = JSON.parse(document.getElementById('summary').textContent);
const SVG = 'http://www.w3.org/2000/svg';

/** An element: `el('div.name', {title: 'x', onclick: f}, 'text', child, …)`. Text is never markup. */
function el(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split('.');
  return filled(document.createElement(tag || 'div'), classes, attributes, children);
}

/** The same in SVG. */
function svg(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split('.');
  return filled(document.createElementNS(SVG, tag), classes, attributes, children);
}

function filled(made, classes, attributes, children) {
  made.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return made;
}

const loaded = new Map();

/** A compressed part of the page, read when it is first asked for. */
function load(id) {
  if (!loaded.has(id)) loaded.set(id, unpacked(document.getElementById(id).textContent));
  return loaded.get(id);
}

async function unpacked(text) {
  if (!('DecompressionStream' in window)) throw new Error('this browser cannot unpack gzip; use Chrome 80, Firefox 113, Safari 16.4, or newer');
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

const number = (x, digits = 3) => (x === 0 ? '0' : x >= 10 ** digits ? Math.round(x).toLocaleString('en') : String(Number(x.toPrecision(digits))));

/** A number with the prefix that makes it short. */
function prefixed(x, unit, step, prefixes) {
  let k = 0;
  while (x >= step && k < prefixes.length - 1) { x /= step; k += 1; }
  return `${number(x)} ${prefixes[k]}${unit}`;
}

const bytesText = (x) => prefixed(x, 'B', 1024, ['', 'Ki', 'Mi', 'Gi']);
const workText = (x) => prefixed(x, 'FLOP', 1000, ['', 'k', 'M', 'G', 'T']);
const rateText = (x) => prefixed(x, 'FLOP/s', 1000, ['', 'k', 'M', 'G', 'T']);
const streamText = (x) => prefixed(x, 'B/s', 1000, ['', 'k', 'M', 'G', 'T']);
const timeText = (x) => (x >= 1 ? `${number(x)} s` : x >= 1e-3 ? `${number(x * 1e3)} ms` : `${number(x * 1e6)} µs`);
const percent = (x) => `${x >= 0.0995 ? Math.round(100 * x) : (100 * x).toFixed(1)} %`;
const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

/** The operators of a kernel, from its symbol: `kernel_3_conv2d_add` is conv2d add. */
const titleOf = (symbol) => symbol.replace(/^kernel_\d+_/, '').replaceAll('_', ' ');

/** The nodes of the model that a step computes, each once. */
const originsOf = (step) => [...new Set(step.operations.map((o) => o[2]).filter(Boolean))];

const measured = summary.run !== null;
const allSeconds = measured ? summary.steps.reduce((sum, s) => sum + s.seconds, 0) : 0;

const kernelSeconds = summary.kernels.map((k) => (measured ? k.steps.reduce((sum, i) => sum + summary.steps[i].seconds, 0) : 0));

/** Go to a view, and to a thing in it. */
const go = (view, ...rest) => { location.hash = [view, ...rest].join('/'); };

const tip = el('div.tip', { role: 'status', hidden: true });

/** Show `lines` beside the pointer while it is over `element`. */
function hint(element, lines) {
  element.addEventListener('pointermove', (event) => {
    tip.replaceChildren(...lines().map((line, k) => el(k ? 'div' : 'b', {}, line)));
    tip.hidden = false;
    const [w, h] = [tip.offsetWidth, tip.offsetHeight];
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - w - 8))}px`;
    tip.style.top = `${event.clientY + 18 + h > innerHeight ? event.clientY - h - 10 : event.clientY + 18}px`;
  });
  element.addEventListener('pointerleave', () => { tip.hidden = true; });
  return element;
}

/** A group of buttons of which one is pressed. */
function choice(label, names, chosen, choose) {
  const buttons = names.map((name) => el('button', { type: 'button', 'aria-pressed': String(name === chosen), onclick: () => {
    buttons.forEach((b) => b.setAttribute('aria-pressed', String(b.textContent === name)));
    choose(name);
  } }, name));
  return el('div.choice', { role: 'group', 'aria-label': label }, buttons);
}

/** A list of which one entry is current; arrows and j/k move. `entries` have `content` and `key`. */
function menu(label, entries, select) {
  const items = new Map();
  const list = el('ul.menu', { 'aria-label': label }, entries.map((e) => {
    const button = el('button', { type: 'button', onclick: () => select(e.key) }, e.content);
    items.set(String(e.key), button);
    return el('li', {}, button);
  }));
  return {
    list,
    mark(key) {
      for (const [k, b] of items) b.toggleAttribute('aria-current', k === String(key));
      const there = items.get(String(key));
      if (there) { there.setAttribute('aria-current', 'true'); there.scrollIntoView({ block: 'nearest' }); }
    },
    step(key, by) {
      const keys = entries.map((e) => String(e.key));
      const at = Math.max(0, Math.min(keys.length - 1, keys.indexOf(String(key)) + by));
      if (keys[at] !== undefined) select(keys[at]);
    },
  };
}
