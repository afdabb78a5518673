// A kernel's texts beside each other. A line that is chosen lights up what it came from, and what it became.

const HUES = 9;

function kernelsView() {
  const content = el('div.content.kernel', {});
  let current = 0, order = measured ? 'Time' : 'Order';
  const nav = el('nav.side', {});
  let side;
  const list = () => {
    const keys = summary.kernels.map((_, k) => k);
    if (order === 'Time') keys.sort((a, b) => kernelSeconds[b] - kernelSeconds[a] || a - b);
    side = menu('Kernels', keys.map((k) => ({ key: k, content: [el('b', {}, titleOf(summary.kernels[k].symbol)), el('span.counts', {}, kernelType(k)), el('span.counts', {}, measured ? `${timeText(kernelSeconds[k])} · ${percent(kernelSeconds[k] / allSeconds)}` : plural(summary.kernels[k].steps.length, 'step'))] })), (k) => go('kernels', k));
    nav.replaceChildren(...(measured ? [choice('Order', ['Time', 'Order'], order, (o) => { order = o; list(); side.mark(current); })] : []), side.list);
  };
  list();
  const draw = async () => {
    const k = current;
    const kernel = summary.kernels[k];
    if (!kernel) { content.replaceChildren(el('p.note', {}, 'This program has no kernels: it contains no generated code.')); return; }
    const texts = await load(`kernel-${k}`);
    if (k !== current) return;
    const steps = kernel.steps.map((i, n) => [n ? ', ' : '', el('a', { href: `#program/${i}` }, String(i + 1))]);
    const nodes = [...new Set(kernel.steps.flatMap((i) => originsOf(summary.steps[i])))];
    const words = nodes.length > 3 ? `${nodes.slice(0, 3).join(', ')} and ${nodes.length - 3} more` : nodes.join(', ');
    content.replaceChildren(el('header.bar', {}, el('div', {}, el('h2', {}, kernel.symbol), el('p', {}, kernel.steps.length ? [kernel.steps.length > 1 ? 'steps ' : 'step ', steps] : '', words ? ` · ${words}` : ''))), panes(texts));
  };
  return {
    root: el('div.split', {}, nav, content),
    show(k) { current = Number(k ?? (measured ? kernelSeconds.indexOf(Math.max(...kernelSeconds)) : 0)); side.mark(current); draw(); },
    step: (by) => side.step(current, by),
  };
}

/** What a kernel gives, where it is called first. */
const kernelType = (k) => summary.steps[summary.kernels[k].steps[0]]?.operations.at(-1)?.[1] ?? '';

/** The texts in panes, linked. Lines are counted from 1. */
function panes(texts) {
  const down = texts.map((t, p) => (p + 1 < texts.length ? inverted(texts[p + 1].sources) : new Map()));
  const hue = hues(texts);
  const made = texts.map((text, p) => pane(text, p, hue[p]));
  let chosen = null, lit = [];
  const light = (p, n, scroll) => {
    lit.forEach((l) => l.classList.remove('exact', 'near', 'here'));
    lit = [];
    if (p === null) return;
    const exact = texts.map(() => new Set()), near = texts.map(() => new Set());
    exact[p].add(n);
    for (let q = p - 1; q >= 0; q -= 1) exact[q + 1].forEach((m) => (texts[q + 1].sources[m - 1] ?? []).forEach((s) => exact[q].add(s)));
    for (let q = p; q + 1 < texts.length; q += 1) exact[q].forEach((m) => (down[q].get(m) ?? []).forEach((s) => exact[q + 1].add(s)));
    for (let q = 0; q + 1 < texts.length; q += 1) [exact[q], near[q]].forEach((set) => { if (q > 0 || p === 0) set.forEach((m) => (down[q].get(m) ?? []).forEach((s) => { if (!exact[q + 1].has(s)) near[q + 1].add(s); })); });
    texts.forEach((_, q) => {
      const mark = (set, word) => set.forEach((m) => { const l = made[q].lines[m - 1]; if (l) { l.classList.add(word); lit.push(l); } });
      mark(near[q], 'near');
      mark(exact[q], 'exact');
      if (scroll && q !== p) {
        const first = Math.min(...(exact[q].size ? exact[q] : near[q]));
        if (Number.isFinite(first)) made[q].show(first);
      }
    });
    made[p].lines[n - 1]?.classList.add('here');
  };
  const columns = made.filter((m) => m.root.classList.contains('tall'));
  let wide = null;
  const spread = () => { frame.style.gridTemplateColumns = columns.map((m) => `minmax(0, ${m === wide ? 3 : 1}fr)`).join(' ') || 'minmax(0, 1fr)'; };
  const frame = el('div.panes', {}, made.map((m) => m.root));
  columns.forEach((m) => m.widen.addEventListener('click', () => { wide = wide === m ? null : m; spread(); }));
  spread();
  made.forEach((m, p) => {
    const at = (event) => { const l = event.target.closest?.('.ln'); return l ? Number(l.dataset.n) : 0; };
    const choose = (n) => {
      chosen = [p, n];
      light(p, n, true);
      made.forEach((o) => o.body.removeAttribute('aria-activedescendant'));
      const line = m.lines[n - 1];
      line.id ||= `line-${p}-${n}`;
      m.body.setAttribute('aria-activedescendant', line.id);
      m.show(n, true);
    };
    m.body.addEventListener('pointerover', (event) => { const n = at(event); if (n && !chosen) light(p, n, false); });
    m.body.addEventListener('pointerleave', () => { if (!chosen) light(null); });
    m.body.addEventListener('click', (event) => {
      const n = at(event);
      if (!n || getSelection().toString()) return;
      if (chosen && chosen[0] === p && chosen[1] === n) { chosen = null; light(null); } else choose(n);
    });
    m.body.addEventListener('keydown', (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
      if (by) { event.preventDefault(); event.stopPropagation(); choose(Math.max(1, Math.min(m.lines.length, (chosen && chosen[0] === p ? chosen[1] : 0) + by))); }
      if (event.key === 'Escape') { chosen = null; light(null); }
    });
  });
  requestAnimationFrame(() => { const [p, n] = busiest(texts); if (n) { made[p].show(n); light(p, n, true); } });
  return frame;
}

/** Of the deepest lines of the loops, the one that became most of the last text. */
function busiest(texts) {
  const loops = texts.findIndex((t) => t.title === 'TIR');
  if (loops < 0 || texts.length < loops + 2) return [0, 0];
  const count = new Array(texts[loops].lines.length + 1).fill(0);
  const last = texts.at(-1);
  last.sources.forEach((from) => from.forEach((s) => { const line = texts.length === loops + 3 ? texts[loops + 1].sources[s - 1]?.[0] : s; if (line) count[line] += 1; }));
  const depth = (line) => texts[loops].lines[line - 1].search(/\S/);
  let best = 0;
  count.forEach((n, line) => { if (n && (!best || depth(line) > depth(best) || (depth(line) === depth(best) && n > count[best]))) best = line; });
  return [loops, best];
}

/** Which lines of a text came from each line of the one before. */
function inverted(sources) {
  const found = new Map();
  sources.forEach((from, i) => from.forEach((s) => { if (!found.has(s)) found.set(s, []); found.get(s).push(i + 1); }));
  return found;
}

/** The same hue for lines that belong together, by the line of the loops. */
function hues(texts) {
  const loops = texts.findIndex((t) => t.title === 'TIR');
  if (loops < 0) return texts.map(() => []);
  const made = texts.map((t) => new Array(t.lines.length).fill(-1));
  const used = new Set((texts[loops + 1]?.sources ?? []).flat());
  let next = 0;
  texts[loops].lines.forEach((_, i) => { if (used.has(i + 1)) { made[loops][i] = next % HUES; next += 1; } });
  for (let q = loops + 1; q < texts.length; q += 1) texts[q].sources.forEach((from, i) => { if (from.length) made[q][i] = made[q - 1][from[0] - 1] ?? -1; });
  return made;
}

function pane(text, p, hue) {
  const lines = text.lines.map((line, i) => {
    const made = el('div.ln', { 'data-n': i + 1, role: 'option' }, el('span.no', {}, i + 1), el('span.text', {}, text.title === 'TIR' ? [el('span.indent', {}, line.match(/^ */)[0]), coloured(line.trimStart(), text.title)] : coloured(line, text.title)));
    if (hue[i] >= 0) made.classList.add(`h${hue[i]}`);
    return made;
  });
  const body = el('div.code.lines', { tabindex: 0, role: 'listbox', 'aria-label': text.title }, lines);
  const widen = el('button', { type: 'button', 'aria-label': `Widen or narrow ${text.title}`, title: 'Widen or narrow' }, '↔');
  const root = el(`section.pane.${text.title === 'Relay' ? 'wide' : 'tall'}`, {}, el('h3', {}, text.title, el('small', {}, plural(text.lines.length, 'line')), text.title === 'Relay' ? null : widen), body);
  return {
    root, body, lines, widen,
    show(n, least) {
      const l = lines[n - 1];
      const [top, bottom] = [l.offsetTop - body.offsetTop, l.offsetTop - body.offsetTop + l.offsetHeight];
      if (least && top >= body.scrollTop && bottom <= body.scrollTop + body.clientHeight) return;
      body.scrollTop = top - (least ? body.clientHeight / 2 : body.clientHeight / 3);
    },
  };
}
