// @ts-check
/**
 * The concept space as the browser holds it.
 *
 * In: the service's header and its binary of points. Out: a `Space`: positions, labels and
 * documents of all points in a random order (so that the first thousand are a fair sample), and
 * which points a label or a document has.
 */

const MAX_SAMPLE = 4000; // points of an island that are looked at
const CORE = 0.65; // of the points of an island that count

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
    state.space = { key, promise };
    promise.catch(() => state.space?.promise === promise && delete state.space);
  }
  return state.space.promise;
}

/** @param {import("./api.js").Api} api @returns {Promise<Space>} */
async function readSpace(api) {
  const header = await api.get(api.model("space"));
  const params = { v: header.version };
  const answer = await api.binary(api.model("space/points"), { params });
  const bytes = await answer.arrayBuffer();
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
  /** @type {string[]} */
  const labels = header.labels;
  const ofLabel = grouped(label, labels.length);
  const ofDocument = grouped(document, header.n_documents);
  return {
    header,
    n,
    xy,
    label,
    document,
    ofLabel,
    ofDocument,
    labels,
    indexOf: new Map(labels.map((name, i) => [name, i])),
    tags: (index) => [...new Set(Array.from(ofDocument(index), (i) => labels[label[i]]))],
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

/** @typedef {{x: number, y: number}} Place */

/**
 * Return where a point lies.
 * @param {Space} space
 * @param {number} point
 * @returns {Place}
 */
export function placeOf({ xy }, point) {
  return { x: xy[2 * point], y: xy[2 * point + 1] };
}

/**
 * Return the mean of some points; nothing where there are none.
 * @param {Float32Array} xy
 * @param {ArrayLike<number>} points
 * @returns {Place | null}
 */
export function centreOf(xy, points) {
  const n = points.length;
  let x = 0;
  let y = 0;
  for (let k = 0; k < n; k += 1) {
    x += xy[2 * points[k]];
    y += xy[2 * points[k] + 1];
  }
  return n ? { x: x / n, y: y / n } : null;
}

/**
 * Return the ellipse in which most of some points lie: centre, half axes, turn. The third of the
 * points that is farthest off does not count.
 * @param {Float32Array} xy
 * @param {number[]} points at least one
 */
export function islandOf(xy, points) {
  const core = coreOf(xy, points);
  const centre = /** @type {Place} */ (centreOf(xy, core));
  let xx = 0;
  let yy = 0;
  let xyMean = 0;
  for (const i of core) {
    const dx = xy[2 * i] - centre.x;
    const dy = xy[2 * i + 1] - centre.y;
    xx += (dx * dx) / core.length;
    yy += (dy * dy) / core.length;
    xyMean += (dx * dy) / core.length;
  }
  // The axes are the eigenvectors of the covariance.
  const mean = (xx + yy) / 2;
  const spread = Math.hypot((xx - yy) / 2, xyMean);
  return {
    ...centre,
    a: 2.5 * Math.sqrt(mean + spread),
    b: 2.5 * Math.sqrt(Math.max(0, mean - spread)),
    turn: 0.5 * Math.atan2(2 * xyMean, xx - yy),
  };
}

/**
 * Return the points that are nearest to the median; of very many points, a sample.
 * @param {Float32Array} xy
 * @param {number[]} points
 */
function coreOf(xy, points) {
  const step = Math.ceil(points.length / MAX_SAMPLE);
  const sample = points.filter((_, k) => k % step === 0);
  const x = median(sample.map((i) => xy[2 * i]));
  const y = median(sample.map((i) => xy[2 * i + 1]));
  const distance = (/** @type {number} */ i) => (xy[2 * i] - x) ** 2 + (xy[2 * i + 1] - y) ** 2;
  const nearestFirst = sample.sort((a, b) => distance(a) - distance(b));
  return nearestFirst.slice(0, Math.max(1, Math.ceil(CORE * sample.length)));
}

/** @param {number[]} numbers */
function median(numbers) {
  const sorted = numbers.sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
