// Where the nodes of a graph stand: in layers from top to bottom, after Sugiyama. Nodes read only nodes before them.

const GAP_X = 26, GAP_Y = 34, MOST_BENDS = 12000, SWEEPS = 6;

/**
 * `nodes` have `reads`, `w` and `h`. Gives each its `x` and `y` (its middle, its top), edges with their points, and the size of it all.
 * Edges over several layers bend where they pass, those from one node together, as the branches of a trunk; beyond MOST_BENDS bends they go straight.
 */
function laidOut(nodes) {
  const rank = [];
  nodes.forEach((n, k) => { rank[k] = n.reads.reduce((most, r) => Math.max(most, rank[r] + 1), 0); });
  // What reads one value at most stands right before those who need it: the value comes to it by the trunk that it has anyway.
  const needed = nodes.map(() => Infinity);
  for (let k = nodes.length - 1; k >= 0; k -= 1) {
    if (nodes[k].reads.length < 2 && needed[k] < Infinity) rank[k] = needed[k] - 1;
    nodes[k].reads.forEach((r) => { needed[r] = Math.min(needed[r], rank[k]); });
  }
  const all = nodes.map((n, k) => ({ k, rank: rank[k], w: n.w, h: n.h, up: [], down: [] }));
  const last = nodes.map((_, k) => rank[k]);
  nodes.forEach((n, k) => n.reads.forEach((r) => { last[r] = Math.max(last[r], rank[k]); }));
  const straight = last.reduce((sum, end, k) => sum + end - rank[k], 0) > MOST_BENDS;
  const edges = [], trunks = nodes.map(() => new Map());
  const linked = (a, b) => { if (!a.down.includes(b)) { a.down.push(b); b.up.push(a); } };
  nodes.forEach((n, k) => n.reads.forEach((r) => {
    const path = [all[r]];
    if (!straight) for (let layer = rank[r] + 1; layer < rank[k]; layer += 1) {
      if (!trunks[r].has(layer)) {
        trunks[r].set(layer, { k: -1, rank: layer, w: 12, h: 0, up: [], down: [] });
        all.push(trunks[r].get(layer));
      }
      path.push(trunks[r].get(layer));
    }
    path.push(all[k]);
    path.slice(1).forEach((b, i) => linked(path[i], b));
    edges.push({ from: r, to: k, path });
  }));
  const layers = [];
  all.forEach((n) => { (layers[n.rank] ??= []).push(n); });
  order(layers);
  place(layers);
  const left = all.reduce((least, n) => Math.min(least, n.x - n.w / 2), Infinity);
  let y = 0;
  for (const layer of layers) {
    const height = Math.max(...layer.map((n) => n.h), 4);
    layer.forEach((n) => { n.x -= left; n.y = y; n.bottom = y + (n.k < 0 ? height : n.h); });
    y += height + GAP_Y;
  }
  all.slice(0, nodes.length).forEach((n) => { nodes[n.k].x = n.x; nodes[n.k].y = n.y; });
  return { edges, width: all.reduce((most, n) => Math.max(most, n.x + n.w / 2), 0), height: Math.max(0, y - GAP_Y) };
}

/** Few crossings: each node near the mean of those above, then of those below. */
function order(layers) {
  layers.forEach((layer) => layer.forEach((n, i) => { n.at = i; }));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const [side, walk] = sweep % 2 ? ['down', [...layers].reverse()] : ['up', layers];
    for (const layer of walk) {
      layer.forEach((n) => { n.wish = n[side].length ? n[side].reduce((s, o) => s + o.at, 0) / n[side].length : n.at; });
      layer.sort((a, b) => a.wish - b.wish || a.at - b.at);
      layer.forEach((n, i) => { n.at = i; });
    }
  }
}

/** Straight lines: each node where its neighbours are, as far as the others of its layer leave room. */
function place(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const n of layer) { n.x = x + n.w / 2; x += n.w + GAP_X; }
    layer.forEach((n) => { n.x -= (x - GAP_X) / 2; });
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const [side, walk] = sweep % 2 ? ['down', [...layers].reverse()] : ['up', layers];
    for (const layer of walk) {
      const wish = layer.map((n) => (n[side].length ? n[side].reduce((s, o) => s + o.x, 0) / n[side].length : n.x));
      const right = [], left = [];
      layer.forEach((n, i) => { right[i] = i ? Math.max(wish[i], right[i - 1] + apart(layer[i - 1], n)) : wish[i]; });
      for (let i = layer.length - 1; i >= 0; i -= 1) left[i] = i < layer.length - 1 ? Math.min(wish[i], left[i + 1] - apart(layer[i], layer[i + 1])) : wish[i];
      layer.forEach((n, i) => { n.x = (left[i] + right[i]) / 2; });
    }
  }
}

const apart = (a, b) => (a.w + b.w) / 2 + GAP_X;
