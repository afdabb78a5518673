// Colours of operators and of who computes them, and of the words of program texts.

const KINDS = [
  ['convolution', /conv|deformable/],
  ['product', /dense|matmul|attention|einsum/],
  ['normalisation', /norm|softmax|lrn/],
  ['pooling', /pool|mean|sum$|reduce|max$|min$|argmax/],
  ['movement', /transpose|reshape|concat|split|slice|pad|take|gather|scatter|tile|repeat|layout|squeeze|expand|copy|cast|resize|upsampling|space|depth|flatten|stack/],
  ['quantisation', /qnn|quantize/],
];

/** The kind of an operator, by its name: what the legend shows. */
const kindOf = (name) => KINDS.find(([, pattern]) => pattern.test(name))?.[0] ?? 'elementwise';

/** The kind of a step: that of its weightiest operator. */
function kindOfStep(step) {
  const kinds = step.operations.map((o) => kindOf(o[0]));
  return ['convolution', 'product', 'pooling', 'normalisation', 'quantisation', 'movement'].find((k) => kinds.includes(k)) ?? (kinds.length ? 'elementwise' : 'movement');
}

const kindColour = (kind) => `var(--k-${kind})`;
const places = ['cpu', ...new Set([...summary.accelerators, ...summary.steps.map((s) => s.where)].filter((w) => w !== 'cpu'))];

/** Who computes something, as a colour. */
const placeColour = (where) => (where === 'cpu' ? 'var(--p-0)' : where === 'copy' ? 'var(--faint)' : where === 'python' ? 'var(--p-python)' : `var(--p-${1 + ((Math.max(1, places.indexOf(where)) - 1) % 4)})`);
const placeName = (where) => ({ cpu: 'generated code', python: 'numpy', copy: 'copy' })[where] ?? where;

/** A legend of names with their colours. */
const legend = (entries) => el('ul.legend', {}, entries.map(([name, colour]) => el('li', {}, el('i', { style: { background: colour } }), name)));

const WORDS = {
  Relay: /(?<comment>\/\*.*?\*\/|^#.*|\/\/.*)|(?<string>"(?:[^"\\]|\\.)*")|(?<keyword>\b(?:fn|let|def|if|else|match|free_var|type|meta)\b)|(?<variable>%[\w.]+)|(?<global>@\w+)|(?<type>\b(?:Tensor|u?int\d+|float\d+|bfloat\d+|bool)\b)|(?<call>[A-Za-z_][\w.]*(?=\())|(?<value>\b\d[\w.]*)/g,
  TIR: /(?<comment>#.*)|(?<string>"(?:[^"\\]|\\.)*")|(?<keyword>\b(?:for|in|if|else|def|with|while|not|and|or|pass)\b)|(?<call>@?\bT\.\w+)|(?<type>\b(?:float32|int\d+|uint\d+)\b)|(?<value>\b\d[\w.]*)/g,
  LLVM: /(?<comment>;.*)|(?<string>"[^"]*")|(?<variable>%[\w.$-]+)|(?<global>[@#!][\w.$-]+)|(?<type>\b(?:i\d+|float|double|half|bfloat|ptr|void|label)\b|<\d+ x \w+>)|(?<keyword>\b(?:define|declare|ret|br|phi|call|load|store|getelementptr|inbounds|icmp|fcmp|select|alloca|switch|unreachable|attributes|noalias|align|tail|to)\b)|(?<call>\b(?:f?add|f?sub|f?mul|f?div|udiv|sdiv|urem|srem|shl|lshr|ashr|and|or|xor|fneg|sext|zext|trunc|bitcast|fptosi|sitofp|uitofp|fpext|fptrunc|extractelement|insertelement|shufflevector|inttoptr|ptrtoint)\b)|(?<value>\b\d[\w.]*)/g,
  Assembly: /(?<comment>\s##? .*|\/\/.*)|(?<global>^[\w.$]+:)|(?<keyword>^\s*\.[\w.]+)|(?<call>^\s+[a-z][\w.]*)|(?<variable>%[a-z]\w*|\b[xyzwvqdsr]\d+\b)|(?<value>\$?-?\b(?:0x)?\d[\da-f]*\b)/g,
};
WORDS.C = /(?<comment>\/\/.*|\/\*.*?\*\/)|(?<string>"(?:[^"\\]|\\.)*")|(?<keyword>\b(?:for|if|else|while|return|static|const|restrict|struct|typedef|void)\b|^#\w+)|(?<type>\b\w+_t\b|\b(?:float|double|int|char)\b)|(?<call>\b\w+(?=\())|(?<value>\b\d[\w.]*)/g;

/** A line of a program in the colours of its language. */
function coloured(line, language) {
  const made = document.createDocumentFragment();
  let at = 0;
  if (line.length < 2000) {
    for (const found of line.matchAll(WORDS[language])) {
      if (found.index > at) made.append(line.slice(at, found.index));
      const [kind] = Object.entries(found.groups).find(([, text]) => text !== undefined);
      made.append(el(`span.w-${kind}`, {}, found[0]));
      at = found.index + found[0].length;
    }
  }
  made.append(line.slice(at));
  return made;
}
