// What lies where in the workspace, step by step.

function memoryView() {
  const { values, workspace, constants, peak, peak_step: at } = summary.memory;
  const detail = el('aside.detail', { 'aria-live': 'polite' });
  const facts = [['workspace', bytesText(workspace)], ['peak', values.length ? `${bytesText(peak)}, during step ${at + 1}` : 'nothing'], ['constants', bytesText(constants)], ['values', String(values.length)]];
  let current = -1, picture;
  const content = el('div.content.scroll', {}, el('header.bar', {}, el('div', {}, el('h2', {}, 'Memory between the kernels'), el('p', {}, 'Steps from left to right, addresses of the workspace from bottom to top. Values with disjoint live ranges share memory.')),
    legend([...new Set(values.map((v) => kindOfStep(summary.steps[v[2]])))].map((k) => [k, kindColour(k)]))),
  el('section.panel', {}, values.length ? (picture = memoryPicture(values, workspace, peak, at, (k) => go('memory', k))).root : el('p.note', {}, 'The workspace is empty: kernels write the outputs directly.')),
  el('section.panel', {}, el('table.plain', {}, el('tbody', {}, facts.map(([n, v]) => el('tr', {}, el('td.dim', {}, n), el('td', {}, v)))))));
  return {
    root: el('div.split.right', {}, content, detail),
    show(k) {
      current = k === undefined ? -1 : Number(k);
      picture?.select(current);
      const v = values[current];
      detail.replaceChildren(...(v ? valueDetail(v) : [el('p.note', {}, 'Choose a value to see its producer and its readers.')]));
    },
    step: (by) => { if (values.length) go('memory', Math.max(0, Math.min(values.length - 1, current + by))); },
  };
}

function valueDetail([offset, nbytes, birth, death]) {
  const rows = [['bytes', bytesText(nbytes)], ['from', number(offset, 12)], ['producer', el('a', { href: `#program/${birth}` }, `step ${birth + 1}`)], ['last reader', el('a', { href: `#program/${death}` }, `step ${death + 1}`)]];
  return [el('h2', {}, titleOf(summary.steps[birth].symbol)), el('table.plain', {}, el('tbody', {}, rows.map(([n, v]) => el('tr', {}, el('td.dim', {}, n), el('td', {}, v))))), el('h3', {}, 'producer'), ...stepDetail(birth).slice(1)];
}

function memoryPicture(values, workspace, peak, at, choose) {
  const [width, height, left, bottom, above] = [1000, 460, 74, 36, 90];
  const steps = summary.steps.length;
  const X = (step) => left + (step / steps) * (width - left - 8);
  const room = height - bottom - above;
  const Y = (offset) => above + room - (offset / workspace) * room;
  const alive = new Array(steps).fill(0);
  values.forEach(([, nbytes, birth, death]) => { for (let s = birth; s <= death; s += 1) alive[s] += nbytes; });
  const most = Math.max(peak, 1);
  const curve = alive.map((b, s) => `${s ? 'L' : 'M'}${X(s)} ${above - 18 - (b / most) * (above - 30)}L${X(s + 1)} ${above - 18 - (b / most) * (above - 30)}`).join('');
  const boxes = values.map(([offset, nbytes, birth, death], k) => {
    const step = summary.steps[birth];
    const shape = svg('rect.value', { x: X(birth) + 0.5, y: Y(offset + nbytes), width: Math.max(1, X(death + 1) - X(birth) - 1), height: Math.max(1, (nbytes / workspace) * room - 0.7), rx: 1.5, style: { fill: kindColour(kindOfStep(step)) } });
    return hint(clickable(shape, `${titleOf(step.symbol)} ${bytesText(nbytes)}`, () => choose(k)), () => [titleOf(step.symbol), `${bytesText(nbytes)} at ${number(offset, 12)}`, `steps ${birth + 1} to ${death + 1}`, ...originsOf(step).slice(0, 2)]);
  });
  const marks = [0, 0.25, 0.5, 0.75, 1].map((f) => [svg('line.grid', { x1: left, x2: width - 8, y1: Y(f * workspace), y2: Y(f * workspace) }), svg('text.axis', { x: left - 8, y: Y(f * workspace) + 4, 'text-anchor': 'end' }, f ? bytesText(f * workspace) : '0')]);
  const axis = ticks(steps, 12).filter((t) => t < steps && Number.isInteger(t)).map((t) => svg('text.axis', { x: (X(t) + X(t + 1)) / 2, y: height - 14, 'text-anchor': 'middle' }, String(t + 1)));
  const chart = svg('svg.chart.memory', { viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Memory plan' }, marks, svg('rect.peak', { x: X(at), y: 8, width: X(at + 1) - X(at), height: height - bottom - 8 }), svg('path.alive', { d: `${curve}L${X(steps)} ${above - 18}L${X(0)} ${above - 18}Z` }), svg('text.axis', { x: left - 8, y: above - 20, 'text-anchor': 'end' }, 'alive'), boxes, axis);
  return { root: chart, select: (k) => boxes.forEach((b, i) => b.classList.toggle('chosen', i === k)) };
}
