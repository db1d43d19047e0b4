// @ts-check
/**
 * The concept space as the browser holds it.
 *
 * In: the service's header and its binary of points. Out: a `Space`: positions, labels and
 * documents of all points in a random order (so that the first thousand are a fair sample), and
 * which points a label or a document has.
 */

/**
 * @typedef {object} Space
 * @property {any} header
 * @property {number} n
 * @property {Float32Array} xy x and y of each point, in turn
 * @property {Uint32Array} label index of each point's label
 * @property {Uint32Array} document index of each point's document
 * @property {string[]} labels
 * @property {Map<string, number>} indexOf label to index
 * @property {(label: number) => Uint32Array} ofLabel points of a label
 * @property {(document: number) => Uint32Array} ofDocument points of a document
 * @property {(document: number) => string[]} tags labels of a document
 */

/**
 * The space of the model in use; read once for each version of the model.
 * @param {any} context
 * @returns {Promise<Space>}
 */
export function loadSpace(context) {
  const { api, state } = context;
  const key = `${api.modelId} ${context.model.version}`;
  if (state.space?.key !== key) {
    const promise = readSpace(api);
    state.space = { key, coming: promise };
    promise.catch(() => state.space?.coming === promise && delete state.space);
  }
  return state.space.coming;
}

/** @param {import("./api.js").Api} api @returns {Promise<Space>} */
async function readSpace(api) {
  const header = await api.get(api.model("space"));
  const bytes = await (
    await api.binary(api.model("space/points"), { params: { v: header.version } })
  ).arrayBuffer();
  const n = Math.min(header.n_points, Math.floor(bytes.byteLength / 16));
  const order = shuffled(n);
  const from = {
    xy: new Float32Array(bytes, 0, 2 * n),
    label: new Uint32Array(bytes, 8 * n, n),
    document: new Uint32Array(bytes, 12 * n, n),
  };
  const xy = new Float32Array(2 * n);
  const label = new Uint32Array(n);
  const document = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) {
    const j = order[i];
    xy[2 * i] = from.xy[2 * j];
    xy[2 * i + 1] = from.xy[2 * j + 1];
    label[i] = from.label[j];
    document[i] = from.document[j];
  }
  const ofLabel = grouped(label, header.labels.length);
  const ofDocument = grouped(document, header.n_documents);
  return {
    header,
    n,
    xy,
    label,
    document,
    ofLabel,
    ofDocument,
    labels: header.labels,
    indexOf: new Map(
      header.labels.map((/** @type {string} */ name, /** @type {number} */ i) => [name, i]),
    ),
    tags: (index) => [...new Set(Array.from(ofDocument(index), (i) => header.labels[label[i]]))],
  };
}

/** Numbers below `n` in an order that is the same every time. @param {number} n */
function shuffled(n) {
  const order = new Uint32Array(n);
  let seed = 12345;
  for (let i = 0; i < n; i += 1) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((seed / 4294967296) * (i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  return order;
}

/**
 * Which positions hold each value, by counting; made when it is first asked for.
 * @param {Uint32Array} values @param {number} n values are below this
 * @returns {(value: number) => Uint32Array}
 */
function grouped(values, n) {
  /** @type {Uint32Array | undefined} */
  let starts;
  /** @type {Uint32Array} */
  let positions;
  const make = () => {
    const begin = new Uint32Array(n + 1);
    for (let i = 0; i < values.length; i += 1) begin[values[i] + 1] += 1;
    for (let v = 0; v < n; v += 1) begin[v + 1] += begin[v];
    const next = begin.slice();
    positions = new Uint32Array(values.length);
    for (let i = 0; i < values.length; i += 1) positions[next[values[i]]++] = i;
    return begin;
  };
  return (value) => {
    starts = starts || make();
    return value >= 0 && value < n
      ? positions.subarray(starts[value], starts[value + 1])
      : new Uint32Array(0);
  };
}

/** @param {Float32Array} xy @param {Uint32Array | number[]} points */
export function centre(xy, points) {
  if (!points.length) return null;
  let x = 0;
  let y = 0;
  for (const i of points) {
    x += xy[2 * i];
    y += xy[2 * i + 1];
  }
  return { x: x / points.length, y: y / points.length };
}

/**
 * The ellipse in which most of some points lie: centre, half axes, turn. The third of the points
 * that is farthest off does not count.
 * @param {Float32Array} xy @param {Uint32Array | number[]} points
 */
export function island(xy, points) {
  const sample =
    points.length > 4000
      ? points.filter((_, k) => k % Math.ceil(points.length / 4000) === 0)
      : points;
  const xs = Array.from(sample, (i) => xy[2 * i]).sort((a, b) => a - b);
  const ys = Array.from(sample, (i) => xy[2 * i + 1]).sort((a, b) => a - b);
  const mx = xs[xs.length >> 1];
  const my = ys[ys.length >> 1];
  const distance = (/** @type {number} */ i) => (xy[2 * i] - mx) ** 2 + (xy[2 * i + 1] - my) ** 2;
  const nearest = Array.from(sample)
    .sort((a, b) => distance(a) - distance(b))
    .slice(0, Math.max(1, Math.ceil(sample.length * 0.65)));
  const middle = /** @type {{x: number, y: number}} */ (centre(xy, nearest));
  let xx = 0;
  let yy = 0;
  let xyc = 0;
  for (const i of nearest) {
    const dx = xy[2 * i] - middle.x;
    const dy = xy[2 * i + 1] - middle.y;
    xx += (dx * dx) / nearest.length;
    yy += (dy * dy) / nearest.length;
    xyc += (dx * dy) / nearest.length;
  }
  const mean = (xx + yy) / 2;
  const spread = Math.sqrt(((xx - yy) / 2) ** 2 + xyc ** 2);
  return {
    ...middle,
    a: 2.5 * Math.sqrt(mean + spread),
    b: 2.5 * Math.sqrt(Math.max(0, mean - spread)),
    turn: 0.5 * Math.atan2(2 * xyc, xx - yy),
  };
}
