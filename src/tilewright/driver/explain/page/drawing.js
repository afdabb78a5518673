// A graph as a picture that can be enlarged, and walked through by keys.

/**
 * The picture of `nodes`: `{label, lines, type, colour, mark, reads, hints}`. `choose(k)` is called for the one that is clicked.
 * Returns the element, with `select(k)` on it, and `center()`, which shows what changed first, or else the middle of the top.
 */
function drawn(nodes, choose, { label }) {
  const cards = nodes.map((n) => {
    const longest = Math.max(n.label.length * 7.9, (n.type ?? '').length * 6, ...n.lines.map((l) => l.length * 6.2));
    return { ...n, w: Math.min(260, Math.max(96, longest + 30)), h: 26 + 14 * n.lines.length + (n.type ? 15 : 0) + (n.share === undefined ? 0 : 8) };
  });
  const { edges, width, height } = laidOut(cards);
  const pad = 24;
  const lines = edges.map((e) => svg('path.edge', { d: curve(e.path, pad), 'data-from': e.from, 'data-to': e.to }));
  const boxes = cards.map((c, k) => box(c, k, pad));
  const picture = svg('svg.graph', { viewBox: `0 0 ${width + 2 * pad} ${height + 2 * pad}`, role: 'group', 'aria-label': label }, lines, boxes);
  const frame = el('div.canvas', { tabindex: 0 }, picture);
  let scale = 1;
  const zoom = (to) => {
    scale = Math.max(0.08, Math.min(2.5, to));
    picture.setAttribute('width', (width + 2 * pad) * scale);
    picture.setAttribute('height', (height + 2 * pad) * scale);
  };
  const fit = () => zoom(Math.min(1, (frame.clientWidth - 4) / (width + 2 * pad), (frame.clientHeight - 4) / (height + 2 * pad)));
  const tools = el('div.zoom', { role: 'group', 'aria-label': 'Size of the picture' },
    el('button', { type: 'button', 'aria-label': 'Smaller', onclick: () => zoom(scale / 1.3) }, '−'),
    el('button', { type: 'button', 'aria-label': 'Fit', onclick: fit }, '⤢'),
    el('button', { type: 'button', 'aria-label': 'Larger', onclick: () => zoom(scale * 1.3) }, '+'));
  frame.addEventListener('wheel', (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? 1.12 : 1 / 1.12));
  }, { passive: false });
  boxes.forEach((b, k) => {
    b.addEventListener('click', () => choose(k));
    b.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(k); } });
    hint(b, () => nodes[k].hints);
  });
  zoom(1);
  const made = el('div.drawn', {}, frame, tools);
  made.select = (k) => {
    boxes.forEach((b, i) => { b.classList.toggle('chosen', i === k); if (i === k) b.setAttribute('aria-current', 'true'); else b.removeAttribute('aria-current'); });
    lines.forEach((l) => { l.classList.toggle('into', Number(l.dataset.to) === k); l.classList.toggle('outof', Number(l.dataset.from) === k); });
    const c = cards[k];
    if (c && frame.clientHeight) frame.scrollTo({ left: (c.x + pad) * scale - frame.clientWidth / 2, top: (c.y + pad) * scale - frame.clientHeight / 3 });
  };
  made.center = () => {
    const middles = cards.map((c) => c.x).sort((a, b) => a - b);
    const first = cards.find((c) => ['came', 'went', 'altered'].includes(c.mark));
    frame.scrollTo({ left: ((first?.x ?? middles[middles.length >> 1] ?? 0) + pad) * scale - frame.clientWidth / 2, top: first ? (first.y + pad) * scale - frame.clientHeight / 4 : 0 });
  };
  return made;
}

function box(c, k, pad) {
  const [x, y] = [c.x - c.w / 2 + pad, c.y + pad];
  const group = svg('g.node', { transform: `translate(${x} ${y})`, tabindex: 0, role: 'button', 'aria-label': `${c.label} ${c.type ?? ''}` });
  if (c.mark) group.classList.add(c.mark);
  group.style.setProperty('--tone', c.colour);
  group.append(svg('rect.card', { width: c.w, height: c.h, rx: 6 }), svg('rect', { width: 4, height: c.h - 8, x: 4, y: 4, rx: 2, style: { fill: c.colour } }));
  group.append(svg('text.label', { x: 15, y: 18 }, cut(c.label, c.w - 24, 7.6)));
  let at = 33;
  for (const line of c.lines) { group.append(svg('text.line', { x: 15, y: at }, cut(line, c.w - 24, 6))); at += 14; }
  if (c.type) { group.append(svg('text.type', { x: 15, y: at }, cut(c.type, c.w - 24, 6))); at += 15; }
  if (c.share !== undefined) {
    group.append(svg('rect.track', { x: 15, y: at - 8, width: c.w - 27, height: 4, rx: 2 }), svg('rect.heat', { x: 15, y: at - 8, width: Math.max(1.5, (c.w - 27) * c.share), height: 4, rx: 2 }));
  }
  return group;
}

const cut = (text, room, each) => (text.length * each <= room ? text : `${text.slice(0, Math.max(1, Math.floor(room / each) - 1))}…`);

/** A smooth path through the points where an edge passes. */
function curve(path, pad) {
  const parts = [];
  for (let i = 1; i < path.length; i += 1) {
    const [x0, y0, x1, y1] = [path[i - 1].x + pad, path[i - 1].bottom + pad, path[i].x + pad, path[i].y + pad];
    const middle = (y0 + y1) / 2;
    parts.push(i === 1 ? `M${x0} ${y0}` : `L${x0} ${y0}`, `C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`);
  }
  return parts.join('');
}
