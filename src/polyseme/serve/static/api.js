// @ts-check
/**
 * The one client of the service's REST interface.
 *
 * In: paths below `/v1/` (or addresses that the service gave). Out: JSON, or bytes; what goes
 * wrong is a `Problem` whose `detail` is one sentence for people.
 */

const TOKEN = "polyseme.token";
const MOST_BLOBS = 500; // pictures and sounds that are held for <img> and <audio>

/** An answer that is no success: what the service said, or that it could not be reached. */
export class Problem extends Error {
  /** @param {{status?: number, title?: string, detail?: string, standing?: any[]}} said */
  constructor(said) {
    super(said.detail || said.title || "Something went wrong.");
    this.name = "Problem";
    this.status = said.status || 0;
    this.detail = this.message;
    /** Of a conflict: the answers that stand. @type {any[]} */
    this.standing = said.standing || [];
  }
}

/** @typedef {{params?: Record<string, any>, signal?: AbortSignal, type?: string}} Options */

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
    return sessionStorage.getItem(TOKEN) || "";
  }

  set token(value) {
    if (value) sessionStorage.setItem(TOKEN, value);
    else sessionStorage.removeItem(TOKEN);
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
   * Objects are sent as JSON; files, forms and bytes as they are.
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
      const [[oldest, gone]] = this.blobs;
      if (this.blobs.size > MOST_BLOBS) (this.blobs.delete(oldest), URL.revokeObjectURL(gone));
    }
    return blob;
  }

  /**
   * @param {string} method @param {string} path @param {any} body @param {Options} [options]
   * @returns {Promise<Response>}
   */
  async request(method, path, body, options = {}) {
    for (let attempt = 0; ; attempt += 1) {
      const answer = await this.send(method, path, body, options);
      const version = answer.headers.get("X-Model-Version");
      if (version) this.onVersion(version);
      if (answer.ok) return answer;
      if (answer.status === 401 && attempt < 3 && (await this.onUnauthorized())) continue;
      throw await problemOf(answer);
    }
  }

  /**
   * @param {string} method @param {string} path @param {any} body @param {Options} options
   * @returns {Promise<Response>}
   */
  async send(method, path, body, options) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json, application/problem+json, */*" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    let sent = body;
    if (options.type) headers["Content-Type"] = options.type;
    if (body !== undefined && !isRaw(body)) {
      headers["Content-Type"] = "application/json";
      sent = JSON.stringify(body);
    }
    try {
      return await fetch(this.url(path, options.params), {
        method,
        headers,
        body: sent,
        signal: options.signal,
      });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
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
  return (
    body instanceof Blob ||
    body instanceof FormData ||
    body instanceof ArrayBuffer ||
    ArrayBuffer.isView(body)
  );
}

/** @param {Response} answer */
async function asJson(answer) {
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** @param {Response} answer */
async function problemOf(answer) {
  /** @type {any} */
  let said = {};
  try {
    said = await answer.json();
  } catch {
    said = { title: answer.statusText };
  }
  if (typeof said.detail !== "string")
    said.detail = said.title || `The service answered ${answer.status}.`;
  return new Problem({ ...said, status: answer.status });
}

/** Whether an error only says that a newer question replaced this one. @param {any} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}
