// Where the nodes of a graph stand: in layers from top to bottom, after Sugiyama. Nodes read only nodes before them.

const GAP_X = 26, GAP_Y = 34, MOST_BENDS = 12000, SWEEPS = 6;

/**
 * `nodes` have `reads`, `w` and `h`. Gives each its `x` and `y` (its middle, its top), edges with their points, and the size of it all.
 * Edges over several layers bend where they pass; beyond MOST_BENDS of them they go straight.
 */
function laidOut(nodes) {
  const rank = [];
  nodes.forEach((n, k) => { rank[k] = n.reads.reduce((most, r) => Math.max(most, rank[r] + 1), 0); });
  // What only feeds something late stands right before it.
  for (let k = nodes.length - 1; k >= 0; k -= 1) if (!nodes[k].reads.length) {
    const users = nodes.flatMap((n, j) => (n.reads.includes(k) ? [rank[j]] : []));
    if (users.length) rank[k] = Math.max(rank[k], Math.min(...users) - 1);
  }
  const all = nodes.map((n, k) => ({ k, rank: rank[k], w: n.w, h: n.h, up: [], down: [] }));
  const bends = nodes.reduce((sum, n, k) => sum + n.reads.reduce((s, r) => s + rank[k] - rank[r] - 1, 0), 0);
  const edges = [];
  nodes.forEach((n, k) => n.reads.forEach((r) => {
    const path = [all[r]];
    if (bends <= MOST_BENDS) for (let layer = rank[r] + 1; layer < rank[k]; layer += 1) {
      const bend = { k: -1, rank: layer, w: 12, h: 0, up: [], down: [] };
      all.push(bend);
      path.push(bend);
    }
    path.push(all[k]);
    for (let i = 1; i < path.length; i += 1) { path[i - 1].down.push(path[i]); path[i].up.push(path[i - 1]); }
    edges.push({ from: r, to: k, path });
  }));
  const layers = [];
  all.forEach((n) => { (layers[n.rank] ??= []).push(n); });
  order(layers);
  place(layers);
  const left = Math.min(0, ...all.map((n) => n.x - n.w / 2));
  let y = 0;
  for (const layer of layers) {
    const height = Math.max(...layer.map((n) => n.h), 4);
    layer.forEach((n) => { n.x -= left; n.y = y; n.bottom = y + (n.k < 0 ? height : n.h); });
    y += height + GAP_Y;
  }
  all.slice(0, nodes.length).forEach((n) => { nodes[n.k].x = n.x; nodes[n.k].y = n.y; });
  return { edges, width: Math.max(0, ...all.map((n) => n.x + n.w / 2)), height: Math.max(0, y - GAP_Y) };
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
