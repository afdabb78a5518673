// How the program ran: its steps on a line of time, and what they reach beside what the machine can do.

function runView() {
  if (!measured) return { root: el('div.page', {}, el('h2', {}, 'Not measured'), el('p.lead', {}, `${summary.not_measured}.`)), show() {}, step() {} };
  const detail = el('aside.detail', { 'aria-live': 'polite' });
  const [line, roof] = [timeline((k) => go('run', k)), roofline((k) => go('run', k))];
  const kinds = [...new Set(summary.steps.map(kindOfStep))];
  let current = -1;
  const content = el('div.content.scroll', {},
    el('header.bar', {}, el('div', {}, el('h2', {}, 'The run'), el('p', {}, `${timeText(summary.run.seconds)} for a call, ${plural(summary.run.threads, 'thread')}; the steps, measured one by one, take ${timeText(allSeconds)}.`)), legend(kinds.map((k) => [k, kindColour(k)]))),
    el('section.panel', {}, el('h2', {}, 'Timeline'), line.root),
    el('section.panel', {}, el('h2', {}, 'Roofline'), roof.root, el('p.note', {}, 'Each dot is a step; larger dots take more time. The lines show the speed of a matrix product in float32, and of reading and writing 256 MB, on this machine. A step below the slope is bound by memory, one below the level line by arithmetic. Steps whose data are in a cache may be above the lines, and so may algorithms with fewer operations than are counted, such as Winograd’s convolutions.')));
  return {
    root: el('div.split.right', {}, content, detail),
    show(k) {
      current = k === undefined ? -1 : Number(k);
      line.select(current);
      roof.select(current);
      detail.replaceChildren(...(summary.steps[current] ? stepDetail(current) : [el('p.note', {}, 'Choose a step in one of the pictures; j and k walk through them in order.')]));
    },
    step: (by) => go('run', Math.max(0, Math.min(summary.steps.length - 1, current + by))),
  };
}

const stepHints = (s) => [titleOf(s.symbol), `${timeText(s.seconds)} · ${percent(s.seconds / allSeconds)}`, s.work ? rateText(s.work / s.seconds) : streamText(s.moved / s.seconds), ...originsOf(s).slice(0, 2)];

/** Marks of a scale from 0 to `most`: 1, 2 or 5 times a power of ten apart. */
function ticks(most, about = 8) {
  const rough = most / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, k) => k * step);
}

function clickable(shape, label, choose) {
  shape.setAttribute('tabindex', 0);
  shape.setAttribute('role', 'button');
  shape.setAttribute('aria-label', label);
  shape.addEventListener('click', choose);
  shape.addEventListener('keydown', (event) => { if (event.key === 'Enter') choose(); });
  return shape;
}

function timeline(choose) {
  const [width, height] = [1000, 92];
  let start = 0;
  const bars = summary.steps.map((s, k) => {
    const [x, w] = [(width * start) / allSeconds, (width * s.seconds) / allSeconds];
    start += s.seconds;
    const bar = svg('rect.span', { x, y: 8, width: Math.max(0.4, w - (w > 3 ? 1 : 0)), height: 50, rx: Math.min(3, w / 4), style: { fill: kindColour(kindOfStep(s)) } });
    return hint(clickable(bar, `${titleOf(s.symbol)} ${timeText(s.seconds)}`, () => choose(k)), () => stepHints(s));
  });
  const axis = ticks(allSeconds, 10).map((t) => [svg('line.tick', { x1: (width * t) / allSeconds, x2: (width * t) / allSeconds, y1: 58, y2: 66 }), svg('text.axis', { x: Math.min(width - 2, (width * t) / allSeconds), y: 82, 'text-anchor': t ? (t > allSeconds * 0.97 ? 'end' : 'middle') : 'start' }, timeText(t) === '0 µs' ? '0' : timeText(t))]);
  const picture = svg('svg.chart', { viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Timeline' }, bars, axis);
  const frame = el('div.strip', { tabindex: 0 }, picture);
  let scale = 1;
  const zoom = (to) => { scale = Math.max(1, Math.min(64, to)); picture.style.width = `${100 * scale}%`; picture.setAttribute('viewBox', `0 0 ${width * scale} ${height}`); stretch(); };
  const stretch = () => {
    picture.querySelectorAll('[data-x]').forEach((e) => e.remove());
    let at = 0;
    summary.steps.forEach((s, k) => {
      const [x, w] = [(width * scale * at) / allSeconds, (width * scale * s.seconds) / allSeconds];
      at += s.seconds;
      bars[k].setAttribute('x', x);
      bars[k].setAttribute('width', Math.max(0.4, w - (w > 3 ? 1 : 0)));
      if (w > 60) picture.append(svg('text.inside', { 'data-x': '', x: x + 6, y: 37 }, cut(titleOf(s.symbol), w - 10, 7.1)));
    });
    axis.forEach(([tick, text], i) => {
      const x = (width * scale * ticks(allSeconds, 10)[i]) / allSeconds;
      tick.setAttribute('x1', x); tick.setAttribute('x2', x); text.setAttribute('x', Math.min(width * scale - 2, x));
    });
  };
  stretch();
  const tools = el('div.zoom', { role: 'group', 'aria-label': 'Zoom of the timeline' }, el('button', { type: 'button', 'aria-label': 'Smaller', onclick: () => zoom(scale / 2) }, '−'), el('button', { type: 'button', 'aria-label': 'Larger', onclick: () => zoom(scale * 2) }, '+'));
  return {
    root: el('div.drawn.flat', {}, frame, tools),
    select(k) {
      bars.forEach((b, i) => b.classList.toggle('chosen', i === k));
      if (bars[k]) frame.scrollLeft = (Number(bars[k].getAttribute('x')) / (width * scale)) * frame.scrollWidth - frame.clientWidth / 2;
    },
  };
}

function roofline(choose) {
  const [width, height, left, bottom, right] = [1000, 430, 84, 46, 24];
  const points = summary.steps.map((s, k) => ({ s, k, x: s.work / Math.max(1, s.moved), y: s.work / s.seconds })).filter((p) => p.s.work > 0 && p.y > 0);
  const { operations, bytes } = summary.run;
  const xs = [operations / bytes, ...points.map((p) => p.x)], ys = [operations, ...points.map((p) => p.y)];
  const logs = (values, low, high) => [Math.floor(Math.log10(Math.min(...values) * low)), Math.ceil(Math.log10(Math.max(...values) * high))];
  const [x0, x1] = logs(xs, 0.6, 1.6), [y0, y1] = logs(ys, 0.8, 1.3);
  const X = (v) => left + ((Math.log10(v) - x0) / (x1 - x0)) * (width - left - right);
  const Y = (v) => 10 + ((y1 - Math.log10(v)) / (y1 - y0)) * (height - bottom - 10);
  const range = (a, b) => Array.from({ length: b - a + 1 }, (_, i) => 10 ** (a + i));
  const grid = [
    range(x0, x1).map((v) => [svg('line.grid', { x1: X(v), x2: X(v), y1: 10, y2: height - bottom }), svg('text.axis', { x: X(v), y: height - bottom + 18, 'text-anchor': 'middle' }, number(v))]),
    range(y0, y1).map((v) => [svg('line.grid', { x1: left, x2: width - right, y1: Y(v), y2: Y(v) }), svg('text.axis', { x: left - 8, y: Y(v) + 4, 'text-anchor': 'end' }, rateText(v))]),
    svg('text.axis', { x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle' }, 'operations for each byte'),
  ];
  const ridge = operations / bytes, low = Math.max(10 ** x0, 10 ** y0 / bytes);
  const roof = [
    svg('path.roof', { d: `M${X(low)} ${Y(low * bytes)}L${X(ridge)} ${Y(operations)}L${X(10 ** x1)} ${Y(operations)}` }),
    svg('text.roof-name', { x: X(ridge) - 10, y: Y(operations) - 6, 'text-anchor': 'end' }, rateText(operations)),
    svg('text.roof-name', { x: X(Math.sqrt(low * ridge)) - 8, y: Y(Math.sqrt(low * ridge) * bytes) - 10, 'text-anchor': 'end' }, streamText(bytes)),
  ];
  const most = Math.max(...points.map((p) => p.s.seconds), 1e-12);
  const dots = points.map(({ s, k, x, y }) => {
    const dot = svg('circle.dot', { cx: X(x), cy: Y(y), r: 3.5 + 9 * Math.sqrt(s.seconds / most), style: { fill: kindColour(kindOfStep(s)) } });
    dot.dataset.step = k;
    return hint(clickable(dot, `${titleOf(s.symbol)} ${rateText(y)}`, () => choose(k)), () => [...stepHints(s), `${number(x)} operations for each byte`, `${percent(y / Math.min(operations, x * bytes))} of the roof`]);
  });
  dots.sort((a, b) => b.getAttribute('r') - a.getAttribute('r'));
  return {
    root: svg('svg.chart.roofline', { viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Roofline' }, grid, roof, dots),
    select: (k) => dots.forEach((d) => d.classList.toggle('chosen', Number(d.dataset.step) === k)),
  };
}
