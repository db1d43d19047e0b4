// @ts-check
/**
 * The concept space as the browser holds it.
 *
 * In: the service's header and its binary of points. Out: a `Space`: positions, labels and
 * documents of all points in a random order (so that the first thousand are a fair sample), and
 * which points a label or a document has.
 *
 * Terms: a point is a concept, a label in a document, by its place in this order. A label or a
 * document is here its index in the service's lists.
 */

const MAX_SAMPLE = 4000; // points of an island that are looked at
const CORE_SHARE = 0.65; // of the points of an island that count
const ISLAND_SPREADS = 2.5; // standard deviations from the middle of an island to its edge
const SEED = 12345; // of the random order, which is the same every time
const POINT_BYTES = 16; // x, y, label and document of a point, each of 4 bytes

/**
 * @typedef {object} Space
 * @property {any} header what `GET space` answers
 * @property {number} n number of points
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

/**
 * Read the space. Its bytes are x and y of all points in turn (float32), then their labels, then
 * their documents (uint32), as `dot_bytes` of host.py writes them.
 * @param {import("./api.js").Api} api
 * @returns {Promise<Space>}
 */
async function readSpace(api) {
  const header = await api.get(api.model("space"));
  const params = { v: header.version };
  const answer = await api.binary(api.model("space/points"), { params });
  const bytes = await answer.arrayBuffer();
  const n = Math.min(header.n_points, Math.floor(bytes.byteLength / POINT_BYTES));
  const order = shuffled(n);
  const sent = {
    xy: new Float32Array(bytes, 0, 2 * n),
    label: new Uint32Array(bytes, 8 * n, n),
    document: new Uint32Array(bytes, 12 * n, n),
  };
  const xy = new Float32Array(2 * n);
  const label = new Uint32Array(n);
  const document = new Uint32Array(n);
  for (let i = 0; i < n; i += 1) {
    const j = order[i];
    xy[2 * i] = sent.xy[2 * j];
    xy[2 * i + 1] = sent.xy[2 * j + 1];
    label[i] = sent.label[j];
    document[i] = sent.document[j];
  }
  /** @type {string[]} */
  const labels = header.labels;
  const ofLabel = groupPositions(label, labels.length);
  const ofDocument = groupPositions(document, header.n_documents);
  const tags = (/** @type {number} */ index) => {
    const names = Array.from(ofDocument(index), (point) => labels[label[point]]);
    return [...new Set(names)];
  };
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
    tags,
  };
}

/**
 * Return the numbers below `n` in a random order that is the same every time.
 *
 * Fisher-Yates, with the linear congruential generator of "Numerical Recipes".
 * @param {number} n
 */
function shuffled(n) {
  const order = new Uint32Array(n);
  let state = SEED;
  for (let i = 0; i < n; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 2 ** 32) * (i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  return order;
}

/**
 * Return a function that tells which positions hold a value; they are sorted at its first call.
 * @param {Uint32Array} values
 * @param {number} n values are below this
 * @returns {(value: number) => Uint32Array}
 */
function groupPositions(values, n) {
  /** @type {ReturnType<typeof sortPositions> | undefined} */
  let sorted;
  return (value) => {
    sorted ??= sortPositions(values, n);
    if (value < 0 || value >= n) return new Uint32Array(0);
    const { positions, starts } = sorted;
    return positions.subarray(starts[value], starts[value + 1]);
  };
}

/**
 * Return the positions of value 0, then of 1 and so on, by a counting sort; and where those of each
 * value start, with the end of the last.
 * @param {Uint32Array} values
 * @param {number} n values are below this
 */
function sortPositions(values, n) {
  const starts = new Uint32Array(n + 1);
  for (let i = 0; i < values.length; i += 1) starts[values[i] + 1] += 1;
  for (let value = 0; value < n; value += 1) starts[value + 1] += starts[value];
  const positions = new Uint32Array(values.length);
  const nextPlaces = starts.slice();
  for (let i = 0; i < values.length; i += 1) {
    positions[nextPlaces[values[i]]] = i;
    nextPlaces[values[i]] += 1;
  }
  return { positions, starts };
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
 * Return the ellipse in which most of some points lie: centre, half axes, and the turn of the
 * longer axis in radians. The third of the points that is farthest off does not count.
 * @param {Float32Array} xy
 * @param {number[]} points at least one
 */
export function islandOf(xy, points) {
  const core = coreOf(xy, points);
  const centre = /** @type {Place} */ (centreOf(xy, core));
  let varianceX = 0;
  let varianceY = 0;
  let covariance = 0;
  for (const point of core) {
    const dx = xy[2 * point] - centre.x;
    const dy = xy[2 * point + 1] - centre.y;
    varianceX += (dx * dx) / core.length;
    varianceY += (dy * dy) / core.length;
    covariance += (dx * dy) / core.length;
  }
  // The axes are the eigenvectors of the covariance matrix, the eigenvalues mean ± difference.
  const mean = (varianceX + varianceY) / 2;
  const difference = Math.hypot((varianceX - varianceY) / 2, covariance);
  return {
    ...centre,
    a: ISLAND_SPREADS * Math.sqrt(mean + difference),
    b: ISLAND_SPREADS * Math.sqrt(Math.max(0, mean - difference)),
    turn: 0.5 * Math.atan2(2 * covariance, varianceX - varianceY),
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
  const x = median(sample.map((point) => xy[2 * point]));
  const y = median(sample.map((point) => xy[2 * point + 1]));
  const squaredDistance = (/** @type {number} */ point) =>
    (xy[2 * point] - x) ** 2 + (xy[2 * point + 1] - y) ** 2;
  const nearestFirst = sample.sort((a, b) => squaredDistance(a) - squaredDistance(b));
  const nCore = Math.max(1, Math.ceil(CORE_SHARE * sample.length));
  return nearestFirst.slice(0, nCore);
}

/** Return the median of numbers, which are sorted in place. @param {number[]} numbers */
function median(numbers) {
  const sorted = numbers.sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
