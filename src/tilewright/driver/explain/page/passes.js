// The graph before and after each pass that changed it: texts side by side in one column, or two pictures.

const CONTEXT = 3;

function passesView() {
  const content = el('div.content', {});
  let current = 0, form = 'Text';
  const side = menu('States of the graph', summary.states.map((s, k) => ({ key: k, content: [el('b', {}, s.name), k ? changeCounts(s) : el('span.counts', {}, 'as imported')] })), (k) => go('passes', k));
  const draw = async () => {
    const [k, state] = [current, summary.states[current]];
    const data = await load(`state-${k}`);
    if (k !== current) return;
    const words = k ? [plural(state.removed, 'line') + ' removed', `${state.added} added`, `${state.changed} changed`, state.seconds ? timeText(state.seconds) : ''].filter(Boolean).join(' · ') : 'The imported graph, before any pass.';
    content.replaceChildren(
      el('header.bar', {}, el('div', {}, el('h2', {}, state.name), el('p', {}, words)),
        choice('View', ['Text', 'Graph'], form, (f) => { form = f; draw(); })),
      state.operators.length ? el('p.chips', {}, state.operators.map(([name, old, now]) => el('span.chip', {}, el('i', { style: { background: kindColour(kindOf(name)) } }), `${name} ${old} → ${now}`))) : '',
      form === 'Text' ? diff(data) : pictures(data, k));
    content.querySelectorAll('.drawn').forEach((d) => d.center());
  };
  return {
    root: el('div.split', {}, el('nav.side', {}, side.list), content),
    show(k, how) {
      current = Number(k ?? Math.min(1, summary.states.length - 1));
      if (how === 'graph') form = 'Graph';
      side.mark(current);
      draw();
    },
    step: (by) => side.step(current, by),
  };
}

/** The rows of a difference; long stretches of unchanged ones are folded. */
function diff(data) {
  const table = el('div.code.diff', { role: 'table', 'aria-label': 'Difference', tabindex: 0 });
  const near = new Uint8Array(data.rows.length);
  const only = data.rows.every((r) => r[0] === '=');
  data.rows.forEach(([kind], i) => { if (kind !== '=' || only) near.fill(1, Math.max(0, i - CONTEXT), i + CONTEXT + 1); });
  for (let i = 0; i < data.rows.length;) {
    if (near[i]) { table.append(...rowsOf(data, i)); i += 1; continue; }
    let end = i;
    while (end < data.rows.length && !near[end]) end += 1;
    table.append(end - i > 1 ? fold(data, i, end) : rowsOf(data, i)[0]);
    i = end;
  }
  table.addEventListener('pointerover', (event) => same(table, event.target));
  return table;
}

function fold(data, begin, end) {
  const button = el('button.fold', { type: 'button', onclick: () => {
    const rows = [];
    for (let i = begin; i < end; i += 1) rows.push(...rowsOf(data, i));
    button.replaceWith(...rows);
  } }, `${end - begin} unchanged lines`);
  return button;
}

function rowsOf(data, i) {
  const [kind, old, now] = data.rows[i];
  if (kind === '~') {
    const [a, b] = [data.old[old - 1], data.new[now - 1]];
    return [row('-', old, '', marked(a, b)), row('+', '', now, marked(b, a))];
  }
  return [row(kind, kind === '+' ? '' : old, kind === '-' ? '' : now, coloured(kind === '-' ? data.old[old - 1] : data.new[now - 1], 'Relay'))];
}

const KIND_CLASS = { '+': 'add', '-': 'del', '=': 'as' };
const row = (kind, old, now, text) => el(`div.row.${KIND_CLASS[kind]}`, { role: 'row' }, el('span.no', {}, old), el('span.no', {}, now), el('span.sign', {}, kind === '=' ? ' ' : kind === '-' ? '−' : '+'), el('span.text', {}, text));

/** A line with what it has not in common with another one marked; numbers of values are no difference. */
function marked(line, other) {
  const words = (text) => text.match(/%?[\w.]+|\s+|[^\s\w]/g) ?? [];
  const plain = (w) => (/^%\d/.test(w) ? '%' : w);
  const [a, b] = [words(line), words(other)];
  let first = 0, last = 0;
  while (first < a.length && first < b.length && plain(a[first]) === plain(b[first])) first += 1;
  while (last < a.length - first && last < b.length - first && plain(a[a.length - 1 - last]) === plain(b[b.length - 1 - last])) last += 1;
  const common = inCommon(a.slice(first, a.length - last).map(plain), b.slice(first, b.length - last).map(plain));
  const made = document.createDocumentFragment();
  let run = '', on = false;
  const flush = () => { if (run) made.append(on ? el('mark', {}, coloured(run, 'Relay')) : coloured(run, 'Relay')); run = ''; };
  a.forEach((w, i) => {
    const changed = i >= first && i < a.length - last && !common.has(i - first);
    if (changed !== on && (changed || w.trim())) { flush(); on = changed; }
    run += w;
  });
  flush();
  return made;
}

/** The places of `a` in a longest common subsequence with `b`; of very long ones, none. */
function inCommon(a, b) {
  const found = new Set();
  if (a.length * b.length > 90000) return found;
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { found.add(i); i += 1; j += 1; } else if (best[i + 1][j] >= best[i][j + 1]) i += 1; else j += 1;
  }
  return found;
}

/** Light up every mention of the value under the pointer. */
function same(table, target) {
  table.querySelectorAll('.same').forEach((w) => w.classList.remove('same'));
  if (!target.classList.contains('w-variable')) return;
  const name = target.textContent.split('.')[0];
  table.querySelectorAll('.w-variable').forEach((w) => { if (w.textContent.split('.')[0] === name) w.classList.add('same'); });
}

const MOST_DRAWN = 2500;

/** The graphs before and after, what went and what came in colour. */
function pictures(data, k) {
  const titles = data.graphs.length === 1 ? [''] : ['before', 'after'];
  return el('div.pictures', {}, data.graphs.map((graph, i) => {
    const marks = ['', 'altered', i ? 'came' : 'went'];
    const count = (mark) => data.compared[i].filter((m) => m === mark).length;
    const words = [count(2) && `${count(2)} ${i ? 'new' : 'gone'}`, count(1) && `${count(1)} changed`].filter(Boolean).join(', ');
    if (graph.length > MOST_DRAWN) return el('p.note', {}, `${graph.length} operators are too many for a picture; the text shows all of them.`);
    const picture = drawn(graph.map(([label, type, origin, where, region, reads, attributes, inner], n) => ({
      label: inner.length ? (label === 'function' ? inner.length === 1 ? inner[0] : `${inner.length} operators` : label) : label,
      lines: inner.length > 1 || label !== 'function' ? inner.slice(0, 6) : [], type, reads,
      colour: where === 'cpu' ? kindColour(kindOf(inner[0] ?? label)) : placeColour(where), mark: marks[data.compared[i][n] ?? 0],
      hints: [label === 'function' ? inner.join(', ') : label, type, origin && `node ${origin}`, attributes, region && `in ${region}, for ${placeName(where)}`].filter(Boolean),
    })), (n) => picture.select(n), { label: `${summary.states[k].name} ${titles[i]}` });
    return el('figure', {}, titles[i] ? el('figcaption', {}, titles[i], el('small', {}, ` ${words}`)) : null, picture);
  }));
}
