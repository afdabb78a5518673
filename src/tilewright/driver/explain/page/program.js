// The program as it runs: one card for each step, in the colour of who computes it.

function programView() {
  const detail = el('aside.detail', { 'aria-live': 'polite' });
  let picture, current = -1;
  const most = Math.max(...summary.steps.map((s) => s.seconds ?? 0), 1e-12);
  const several = new Set(summary.steps.map((s) => s.where)).size > 1;
  const nodes = summary.steps.map((s, k) => ({
    label: `${k + 1}  ${s.where === 'cpu' || s.operations.length === 1 ? mainOperator(s) : s.symbol}`,
    lines: s.operations.length > 1 ? folded(s.operations.map((o) => o[0])) : [], type: s.operations.at(-1)?.[1] ?? '', reads: s.reads, colour: several ? placeColour(s.where) : kindColour(kindOfStep(s)),
    mark: s.where === 'cpu' ? '' : 'handed', share: measured ? s.seconds / most : undefined,
    hints: [s.symbol, `${placeName(s.where)}${measured ? ` · ${timeText(s.seconds)} · ${percent(s.seconds / allSeconds)}` : ''}`, ...originsOf(s).slice(0, 4)],
  }));
  const content = el('div.content', {});
  const draw = () => {
    if (picture) return;
    const used = places.filter((p) => summary.steps.some((s) => s.where === p)).map((p) => [placeName(p), placeColour(p)]);
    const kinds = [...new Set(summary.steps.map(kindOfStep))].map((kind) => [kind, kindColour(kind)]);
    picture = nodes.length > MOST_DRAWN ? Object.assign(el('p.note', {}, `${nodes.length} steps are too many for a picture.`), { select() {}, center() {} }) : drawn(nodes, (k) => go('program', k), { label: 'Steps of the program' });
    content.replaceChildren(el('header.bar', {}, el('div', {}, el('h2', {}, 'The program'), el('p', {}, `${plural(summary.steps.length, 'step')} in order; fused operators share a card.`)),
      legend(several ? used : kinds)), picture);
    picture.center();
  };
  return {
    root: el('div.split.right', {}, content, detail),
    show(k) {
      draw();
      current = k === undefined ? -1 : Number(k);
      picture.select(current);
      detail.replaceChildren(...(summary.steps[current] ? stepDetail(current) : [el('p.note', {}, 'Choose a step to see what it computes. j and k walk through them in order.')]));
    },
    step: (by) => go('program', Math.max(0, Math.min(summary.steps.length - 1, current + by))),
  };
}

/** The operator that a step is named after. */
const mainOperator = (s) => s.operations.find((o) => kindOf(o[0]) === kindOfStep(s))?.[0] ?? titleOf(s.symbol);

const MOST_LINES = 8;

/** Names in a row, the same ones together: `add × 3`. Of many, how often each is there. */
function folded(names) {
  const found = [];
  for (const name of names) {
    if (found.length && found.at(-1)[0] === name) found.at(-1)[1] += 1;
    else found.push([name, 1]);
  }
  const text = ([name, n]) => (n > 1 ? `${name} × ${n}` : name);
  if (found.length <= MOST_LINES) return found.map(text);
  const counted = [...new Set(names)].map((name) => [name, names.filter((n) => n === name).length]).sort((a, b) => b[1] - a[1]);
  return [...counted.slice(0, MOST_LINES).map(text), ...(counted.length > MOST_LINES ? [`and ${counted.length - MOST_LINES} more`] : [])];
}

/** What is known of a step, for the margin. */
function stepDetail(k) {
  const s = summary.steps[k];
  const kernel = summary.kernels[s.kernel];
  const facts = [
    ['step', `${k + 1} of ${summary.steps.length}${s.block ? `, block ${s.block}` : ''}`],
    ['computed by', placeName(s.where)],
    measured && ['time', `${timeText(s.seconds)}, ${percent(s.seconds / allSeconds)} of the total`],
    measured && s.work > 0 && ['work', `${workText(s.work)}, ${rateText(s.work / s.seconds)}`],
    ['memory', `${bytesText(s.bytes)} read and written`],
    kernel && ['kernel', el('a', { href: `#kernels/${s.kernel}` }, s.symbol)],
    kernel && kernel.steps.length > 1 && ['shared by', `${kernel.steps.length} steps`],
  ].filter(Boolean);
  return [
    el('h2', {}, titleOf(s.symbol)),
    el('table.plain', {}, el('tbody', {}, facts.map(([name, value]) => el('tr', {}, el('td.dim', {}, name), el('td', {}, value))))),
    s.operations.length ? el('h3', {}, plural(s.operations.length, 'operator')) : null,
    el('ol.operations', {}, s.operations.map(([name, type, origin]) => el('li', {}, el('b', {}, el('i', { style: { background: kindColour(kindOf(name)) } }), name), el('code', {}, type), origin ? el('small', {}, origin) : null))),
    s.reads.length ? el('p.dim', {}, 'reads ', s.reads.map((r, i) => [i ? ', ' : '', el('a', { href: `#program/${r}` }, `step ${r + 1}`)])) : null,
  ].filter(Boolean);
}
