// The frame: views and their tabs, the search box, keys, light and dark.

const VIEWS = [['overview', 'Overview', () => ({ root: overview(), show() {}, step() {} })], ['passes', 'Passes', passesView], ['program', 'Program', programView], ['kernels', 'Kernels', kernelsView], ['run', 'Run', runView], ['memory', 'Memory', memoryView]];
if (summary.has_c) VIEWS.push(['c', 'C', cView]);

const stage = el('main', { id: 'stage', tabindex: -1 });
const tabs = new Map(VIEWS.map(([name, title], k) => [name, el('a', { href: `#${name}`, title: `${title} (${k + 1})` }, title)]));
const made = new Map();
let here = 'overview';

function show() {
  const [name, ...rest] = decodeURIComponent(location.hash.slice(1)).split('/');
  const view = VIEWS.find((v) => v[0] === name) ?? VIEWS[0];
  [here] = view;
  tip.hidden = true;
  for (const [n, tab] of tabs) { if (n === here) tab.setAttribute('aria-current', 'page'); else tab.removeAttribute('aria-current'); }
  if (!made.has(here)) made.set(here, view[2]());
  const found = made.get(here);
  if (stage.firstChild !== found.root) stage.replaceChildren(found.root);
  Promise.resolve(found.show(rest[0] || undefined, rest[1])).catch(failed);
}

function failed(error) {
  stage.replaceChildren(el('div.page', {}, el('h2', {}, 'This part cannot be shown'), el('p.lead', {}, String(error.message ?? error))));
}

function cView() {
  const content = el('div.content', {});
  return { root: content, step() {}, async show() {
    const lines = await load('c-text');
    content.replaceChildren(el('header.bar', {}, el('div', {}, el('h2', {}, 'The kernels as C'), el('p', {}, plural(lines.length, 'line')))), el('div.code.lines.alone', { tabindex: 0 }, lines.map((l, i) => el('div.ln', {}, el('span.no', {}, i + 1), el('span.text', {}, coloured(l, 'C'))))));
  } };
}

// Search: names of passes, kernels, operators and nodes of the model.

const found = el('ul.found', { role: 'listbox', id: 'found', 'aria-label': 'Search results', hidden: true });
const search = el('input', { type: 'search', placeholder: 'Search   /', 'aria-label': 'Search passes, kernels, operators and nodes', role: 'combobox', 'aria-expanded': 'false', 'aria-controls': 'found', autocomplete: 'off', spellcheck: 'false', oninput: lookUp, onkeydown: searchKeys });
let index, picked = 0;

function indexed() {
  const entries = summary.states.map((s, k) => ['pass', s.name, `passes/${k}`, '']);
  summary.kernels.forEach((k, i) => entries.push(['kernel', k.symbol, `kernels/${i}`, '']));
  summary.steps.forEach((s, i) => {
    for (const node of originsOf(s)) entries.push(['node', node, `program/${i}`, titleOf(s.symbol)]);
    for (const name of new Set(s.operations.map((o) => o[0]))) entries.push(['operator', name, `program/${i}`, `step ${i + 1}${s.operations[0][2] ? `, ${s.operations[0][2]}` : ''}`]);
  });
  return entries.map((e) => [...e, `${e[1]} ${e[3]}`.toLowerCase()]);
}

function lookUp() {
  index ??= indexed();
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const byName = (e) => words.every((w) => e[1].toLowerCase().includes(w));
  const hits = words.length ? index.filter((e) => words.every((w) => e[4].includes(w))).sort((a, b) => byName(b) - byName(a) || a[1].length - b[1].length).slice(0, 40) : [];
  picked = 0;
  found.replaceChildren(...hits.map(([kind, name, target, words], i) => el('li', { role: 'option', 'aria-selected': String(i === 0), 'data-target': target, onpointerdown: (event) => { event.preventDefault(); leave(target); } }, el('small', {}, kind), el('span', {}, name), el('em', {}, words))));
  if (words.length && !hits.length) found.replaceChildren(el('li.none', {}, `no name contains '${search.value}'`));
  found.hidden = !words.length;
  search.setAttribute('aria-expanded', String(!found.hidden));
}

function leave(target) {
  found.hidden = true;
  search.value = '';
  search.blur();
  search.setAttribute('aria-expanded', 'false');
  if (target) location.hash = target;
}

function searchKeys(event) {
  const items = [...found.querySelectorAll('[data-target]')];
  if (event.key === 'Escape') leave();
  else if (event.key === 'Enter' && items[picked]) leave(items[picked].dataset.target);
  else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    event.preventDefault();
    picked = Math.max(0, Math.min(items.length - 1, picked + (event.key === 'ArrowDown' ? 1 : -1)));
    items.forEach((i, k) => i.setAttribute('aria-selected', String(k === picked)));
    items[picked]?.scrollIntoView({ block: 'nearest' });
  } else return;
  event.stopPropagation();
}

// Light and dark: as the system says, until somebody chooses.

const THEMES = ['auto', 'light', 'dark'];
const themeButton = el('button.icon', { type: 'button', onclick: () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]) });

function theme(name) {
  document.documentElement.dataset.theme = name;
  themeButton.textContent = { auto: '◐', light: '☀', dark: '☾' }[name];
  themeButton.setAttribute('aria-label', `Colours: ${name}`);
  themeButton.title = `Colours: ${name} (t)`;
  try { localStorage.setItem('tilewright-theme', name); } catch { /* a page from a file may keep nothing */ }
}

function kept() {
  try { return localStorage.getItem('tilewright-theme'); } catch { return null; }
}

// Keys.

const KEYS = [['1 … 7', 'the views'], ['j  k', 'next and previous: pass, step, kernel, value'], ['/', 'search'], ['↑ ↓', 'in a text: select the line whose links are shown'], ['Tab', 'next text'], ['t', 'light, dark, or the setting of the system'], ['?', 'this list']];
const help = el('dialog', { 'aria-label': 'Keys' }, el('h2', {}, 'Keys'), el('table.plain', {}, el('tbody', {}, KEYS.map(([k, words]) => el('tr', {}, el('td', {}, el('kbd', {}, k)), el('td', {}, words))))), el('button', { type: 'button', onclick: () => help.close() }, 'Close'));

document.addEventListener('keydown', (event) => {
  if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') { event.preventDefault(); search.focus(); }
  else if (event.key === '?') help.showModal();
  else if (event.key === 't') themeButton.click();
  else if (event.key === 'j') made.get(here).step(1);
  else if (event.key === 'k') made.get(here).step(-1);
  else if (VIEWS[Number(event.key) - 1]) go(VIEWS[Number(event.key) - 1][0]);
});

theme(THEMES.includes(kept()) ? kept() : 'auto');
document.body.append(
  el('header.top', {}, el('a.brand', { href: '#overview' }, svg('svg', { viewBox: '0 0 20 20', width: 20, height: 20, 'aria-hidden': 'true' }, svg('rect.t1', { x: 1, y: 1, width: 8, height: 8, rx: 2 }), svg('rect.t2', { x: 11, y: 1, width: 8, height: 8, rx: 2 }), svg('rect.t3', { x: 1, y: 11, width: 8, height: 8, rx: 2 }), svg('rect.t4', { x: 11, y: 11, width: 8, height: 8, rx: 2 })), el('span', {}, summary.model)),
    el('nav.tabs', { 'aria-label': 'Views' }, [...tabs.values()]),
    el('div.search', {}, search, found),
    el('button.icon', { type: 'button', 'aria-label': 'Keys', title: 'Keys (?)', onclick: () => help.showModal() }, '?'), themeButton),
  stage, tip, help);
addEventListener('hashchange', show);
search.addEventListener('blur', () => { found.hidden = true; });
show();
