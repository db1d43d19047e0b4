// @ts-check
/**
 * The one client of the service's REST interface.
 *
 * In: paths below `/v1/` (or addresses that the service gave). Out: JSON, or bytes; what goes
 * wrong is a `Problem` whose `detail` is one sentence for people.
 */

/** @typedef {"seen" | "unseen" | "oov"} Kind */
/** @typedef {{label: string, probability: number, kind: Kind}} Suggestion */
/** @typedef {{document: number, labels: string[]}} TagSet a known tag set, and its index */
/** @typedef {TagSet & {distance: number}} Neighbour */
/**
 * A question that the service would like to have answered.
 * @typedef {{item: string, label: string, probability: number, rank: number, why: string}} Question
 */
/**
 * An answer that the service has.
 * @typedef {object} Verdict
 * @property {number} number
 * @property {string} item
 * @property {string} label
 * @property {boolean} answer
 * @property {string | null} who
 * @property {string | null} time
 * @property {number | null} [score] the probability that was shown
 * @property {boolean} [undone]
 * @property {boolean} [superseded] by a later answer
 */
/**
 * @typedef {object} Item
 * @property {string} id
 * @property {string[]} tags
 * @property {string} [media] address of its file
 * @property {string} [thumbnail]
 * @property {Verdict[]} verdicts
 * @property {Suggestion[]} suggestions
 */
/**
 * A label in a list.
 * @typedef {object} Label
 * @property {string} label
 * @property {Kind} kind
 * @property {number} count tag sets that hold it
 * @property {boolean} blocked
 * @property {number | null} quality C-MAP on held-out items
 * @property {number | null} quality_unseen the same, when the label is made unseen
 * @property {{yes: number, no: number}} verdicts
 */
/**
 * A sense of a label.
 * @typedef {object} Sense
 * @property {string[]} words that tell it from the others
 * @property {number} count tag sets of this sense
 * @property {number[]} documents their indexes
 * @property {string[][]} example_sets some of them
 */
/**
 * All that is known of a label.
 * @typedef {object} LabelFacts
 * @property {Sense[]} senses
 * @property {number | null} silhouette how far the senses lie apart
 * @property {{label: string, share: number}[]} companions
 * @property {{label: string, reason: string}[]} similar that may be one with it
 * @property {string[]} aliases
 * @property {string[]} implies
 */
/** @typedef {Label & LabelFacts} LabelCard */
/**
 * A version of the model.
 * @typedef {object} Version
 * @property {number} number
 * @property {string} action
 * @property {string | null} detail
 * @property {string | null} who
 * @property {string | null} time
 * @property {number} n_labels
 * @property {number} n_documents
 */

const TOKEN_KEY = "polyseme.token"; // of the storage of this tab
const MAX_BLOBS = 500; // pictures and sounds that are held for <img> and <audio>
const MAX_ATTEMPTS = 4; // of a request that asks for a token

/** An answer that is no success: what the service said, or that it could not be reached. */
export class Problem extends Error {
  /** @param {{status?: number, title?: string, detail?: string, standing?: Verdict[] | null}} body */
  constructor({ status = 0, title, detail, standing }) {
    super(detail || title || "Something went wrong.");
    this.name = "Problem";
    this.status = status;
    this.detail = this.message;
    /** Of a conflict: the answers that stand. */
    this.standing = standing ?? [];
  }

  /** Whether the service understood the request and refused it. */
  get isRefusal() {
    return this.status >= 400 && this.status < 500;
  }
}

/** @typedef {{params?: Record<string, any>, signal?: AbortSignal}} Options */

export class Api {
  constructor() {
    /** Where the interface begins; relative, so that the studio works below any address. */
    this.base = new URL("v1/", document.baseURI);
    /** Id of the model in use; `app.js` sets it. */
    this.modelId = "";
    /** Asks a person for a token; true when there is one to try. @type {() => Promise<boolean>} */
    this.onUnauthorized = async () => false;
    /** Told which version of the model answered. @type {(version: string) => void} */
    this.onVersion = () => {};
    /** @type {Map<string, string>} */
    this.blobs = new Map();
  }

  get token() {
    return sessionStorage.getItem(TOKEN_KEY) || "";
  }

  set token(value) {
    if (value) sessionStorage.setItem(TOKEN_KEY, value);
    else sessionStorage.removeItem(TOKEN_KEY);
  }

  /**
   * A path below the model in use: `api.model("labels")`, `api.model("labels", name, "rename")`.
   * The first part is taken as it is, further parts are names and are encoded.
   * @param {string} [path]
   * @param {...(string | number)} parts
   */
  model(path = "", ...parts) {
    const start = `models/${encodeURIComponent(this.modelId)}`;
    return [start, ...(path ? [path] : []), ...parts.map(addressOf)].join("/");
  }

  /**
   * The full address of a path; what is absolute already stays so.
   * @param {string} path
   * @param {Record<string, any>} [params]
   */
  url(path, params = {}) {
    const url = new URL(path, this.base);
    for (const [key, value] of Object.entries(params)) {
      if (value !== null && value !== undefined && value !== "")
        url.searchParams.set(key, String(value));
    }
    return url.href;
  }

  /** @param {string} path @param {Options} [options] @returns {Promise<any>} */
  async get(path, options) {
    return (await this.request("GET", path, undefined, options)).json();
  }

  /**
   * Objects are sent as JSON; files and forms as they are.
   * @param {string} path @param {any} [body] @param {Options} [options] @returns {Promise<any>}
   */
  async post(path, body, options) {
    return asJson(await this.request("POST", path, body === undefined ? {} : body, options));
  }

  /** @param {string} path @param {Options} [options] @returns {Promise<any>} */
  async del(path, options) {
    return asJson(await this.request("DELETE", path, undefined, options));
  }

  /**
   * The whole answer, for bytes: `(await api.binary(path)).arrayBuffer()` or `.blob()`.
   * @param {string} path @param {Options} [options] @returns {Promise<Response>}
   */
  binary(path, options) {
    return this.request("GET", path, undefined, options);
  }

  /** What a path has, as text. @param {string} path @returns {Promise<string>} */
  async text(path) {
    return (await this.binary(path)).text();
  }

  /**
   * An address that an <img> or <audio> can use: with a token the bytes are fetched first.
   * @param {string} path @returns {Promise<string>}
   */
  async media(path) {
    const url = this.url(path);
    if (!this.token || new URL(url).origin !== location.origin) return url;
    let blob = this.blobs.get(url);
    if (!blob) {
      blob = URL.createObjectURL(await (await this.binary(path)).blob());
      this.blobs.set(url, blob);
      this.dropOldBlobs();
    }
    return blob;
  }

  dropOldBlobs() {
    if (this.blobs.size <= MAX_BLOBS) return;
    const [[oldestUrl, oldestBlob]] = this.blobs;
    this.blobs.delete(oldestUrl);
    URL.revokeObjectURL(oldestBlob);
  }

  /**
   * @param {string} method @param {string} path @param {any} body @param {Options} [options]
   * @returns {Promise<Response>}
   */
  async request(method, path, body, options = {}) {
    for (let attempt = 1; ; attempt += 1) {
      const answer = await this.send(method, path, body, options);
      const version = answer.headers.get("X-Model-Version");
      if (version) this.onVersion(version);
      if (answer.ok) return answer;
      const needsToken = answer.status === 401 && attempt < MAX_ATTEMPTS;
      if (needsToken && (await this.onUnauthorized())) continue;
      throw await problemOf(answer);
    }
  }

  /**
   * Send a request once; what keeps it from the service is a `Problem`.
   * @param {string} method @param {string} path @param {any} body @param {Options} options
   * @returns {Promise<Response>}
   */
  async send(method, path, body, options) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json, application/problem+json, */*" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const isJson = body !== undefined && !isRaw(body);
    if (isJson) headers["Content-Type"] = "application/json";
    const content = isJson ? JSON.stringify(body) : body;
    const { params, signal } = options;
    try {
      return await fetch(this.url(path, params), { method, headers, body: content, signal });
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new Problem({
        title: "Not reached",
        detail: "The service cannot be reached; is it still running?",
      });
    }
  }
}

/**
 * A name as a part of an address: browsers take `.` and `..` out, so that a space follows them.
 * @param {string | number} name
 */
function addressOf(name) {
  return encodeURIComponent(/^\.{1,2} *$/.test(String(name)) ? `${name} ` : name);
}

/** @param {any} body */
function isRaw(body) {
  return body instanceof Blob || body instanceof FormData;
}

/** @param {Response} answer */
async function asJson(answer) {
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** @param {Response} answer */
async function problemOf(answer) {
  const { status, statusText } = answer;
  const problem = await answer.json().catch(() => ({ title: statusText }));
  const isText = typeof problem.detail === "string";
  const detail = isText ? problem.detail : problem.title || `The service answered ${status}.`;
  return new Problem({ ...problem, detail, status });
}

/** Whether an error only says that a newer question replaced this one. @param {any} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}
