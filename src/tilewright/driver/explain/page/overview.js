// The first view: what the model is, and what became of it.

function overview() {
  const tiles = [
    measured && ['Time of a call', timeText(summary.run.seconds), `median, ${plural(summary.run.threads, 'thread')}`],
    measured && ['Reached', rateText(allWork() / summary.run.seconds), `a matrix product reaches ${rateText(summary.run.operations)}`],
    ['Operators', number(sumOf(Object.values(summary.operators))), `became ${plural(summary.steps.length, 'step')} of ${plural(summary.kernels.length, 'kernel')}`],
    ['Constants', bytesText(summary.memory.constants), 'packed in the order of the kernels'],
    ['Workspace', bytesText(summary.memory.workspace), `${plural(summary.memory.values.length, 'value')} share it`],
    ['Compiled in', timeText(sumOf(summary.phases.filter(([n]) => n !== 'cache').map(([, s]) => s))), `${summary.states.length - 1} of ${summary.passes} passes changed the graph`],
  ].filter(Boolean);
  return el('div.page', {},
    el('h1', {}, summary.model),
    el('p.lead', {}, 'compiled for ', el('code', {}, summary.target), ` by Tilewright ${summary.compiler}`),
    summary.sizes ? el('p.note', {}, `The model has symbolic dimensions; this program is for ${summary.sizes}.`) : null,
    el('div.tiles', {}, tiles.map(([name, value, words]) => el('div.tile', {}, el('span', {}, name), el('b', {}, value), el('small', {}, words)))),
    el('div.columns', {},
      panel('Inputs and outputs', signature()),
      panel('Steps by device', shares()),
      panel('Compile time by phase', bars(summary.phases.filter(([, s]) => s > 0).map(([n, s]) => [n, s, timeText(s)]))),
      panel('Passes that changed the graph', passList()),
      panel(measured ? 'Slowest kernels' : 'Kernels', topKernels()),
      panel('Operators of the model', bars(Object.entries(summary.operators).sort((a, b) => b[1] - a[1]).slice(0, 12).map(([n, c]) => [n, c, String(c), kindColour(kindOf(n))])))),
    measured ? null : el('p.note', {}, `Not measured: ${summary.not_measured}.`));
}

const sumOf = (values) => values.reduce((a, b) => a + b, 0);
const allWork = () => sumOf(summary.steps.map((s) => s.work));
const panel = (title, content) => el('section.panel', {}, el('h2', {}, title), content);

function signature() {
  const rows = [...summary.inputs.map((t) => ['input', ...t]), ...summary.outputs.map((t) => ['output', ...t])];
  return el('table.plain', {}, el('tbody', {}, rows.map(([word, name, type]) => el('tr', {}, el('td.dim', {}, word), el('td', {}, name), el('td', {}, el('code', {}, type))))));
}

function shares() {
  const found = places.map((p) => [p, summary.steps.filter((s) => s.where === p)]).filter(([, steps]) => steps.length);
  return bars(found.map(([p, steps]) => [placeName(p), steps.length, plural(steps.length, 'step'), placeColour(p)]));
}

/** Bars of `[name, size, text, colour, where to go]`. */
function bars(entries) {
  const most = Math.max(...entries.map((e) => e[1]), 1e-12);
  return el('ul.bars', {}, entries.map(([name, size, text, colour, target]) => el('li', {},
    target ? el('a', { href: `#${target}` }, name) : el('span', {}, name),
    el('i', {}, el('u', { style: { width: `${(100 * size) / most}%`, background: colour ?? 'var(--accent)' } })), el('b', {}, text))));
}

function passList() {
  return el('ul.links', {}, summary.states.map((s, k) => (k ? el('li', {}, el('a', { href: `#passes/${k}` }, s.name), changeCounts(s)) : null)));
}

const changeCounts = (s) => el('span.counts', {},
  s.removed ? el('span.minus', {}, `−${s.removed}`) : null, s.added ? el('span.plus', {}, `+${s.added}`) : null, s.changed ? el('span.rewired', {}, `~${s.changed}`) : null);

function topKernels() {
  const order = summary.kernels.map((_, k) => k).sort((a, b) => kernelSeconds[b] - kernelSeconds[a] || a - b).slice(0, 8);
  return bars(order.map((k) => {
    const kernel = summary.kernels[k];
    const size = measured ? kernelSeconds[k] : kernel.steps.length;
    return [titleOf(kernel.symbol), size, measured ? `${timeText(size)} · ${percent(size / allSeconds)}` : plural(size, 'step'), 'var(--accent)', `kernels/${k}`];
  }));
}
