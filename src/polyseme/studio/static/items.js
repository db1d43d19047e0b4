// @ts-check
/**
 * What an item looks like: its name, a small picture of it, its picture, sound or text in full.
 *
 * In: an item's id. Out: elements, and names that are short and yet told apart.
 */

import { add, clear, h } from "./dom.js";
import { icon, plural } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */

/**
 * What things of a kind of media are called, which files are offered to choose from, and how the
 * types of those begin that can be used.
 * @typedef {object} MediaWords
 * @property {string} item
 * @property {string} one
 * @property {string} all
 * @property {string | null} accept
 * @property {string[]} types
 */

/** @type {Record<string, MediaWords>} */
const MEDIA = {
  image: {
    item: "picture",
    one: "a picture",
    all: "pictures",
    accept: "image/*",
    types: ["image/"],
  },
  audio: { item: "sound", one: "a sound", all: "sound", accept: "audio/*", types: ["audio/"] },
  text: {
    item: "text",
    one: "a text",
    all: "texts",
    accept: ".txt,.text,.md,.markdown,.html,.htm,.xhtml,.pdf,text/*,application/pdf",
    types: ["text/", "application/pdf", "application/xhtml+xml"],
  },
};

/** Of the kinds that other packages add. */
const OTHER_MEDIA = { item: "item", one: "a file", all: "files", accept: null };

/**
 * Return the words for a kind of media, such as "image".
 * @param {string} kind
 * @returns {MediaWords}
 */
export const mediaWords = (kind) => MEDIA[kind] ?? { ...OTHER_MEDIA, types: [`${kind}/`] };

/** Whether the items of a model can be told by a small picture. @param {any} model */
export const hasPictures = ({ collection }) => ["image", "text"].includes(collection?.media);

/** What the items of a model are called. @param {any} model */
const itemWord = (model) => mediaWords(model.collection?.media).item;

/** A link to the items without tags of their own, where there are any. @param {any} model */
export function untaggedLink(model) {
  const n = model.collection?.n_untagged;
  return (
    n > 0 &&
    h("a.button", { href: "#/review/untagged" },
      icon("vocabulary"),
      `${plural(n, itemWord(model))} without tags`,
    )
  );
}

/** The last part of an id. @param {string} id */
const baseName = (id) => id.split("/").pop() || id;

/**
 * A name of a file, which breaks behind slashes and hyphens rather than inside its suffix.
 * @param {string} name
 */
export function breakable(name) {
  const parts = name.match(/[^/_-]*[/_-]|[^/_-]+/g) ?? [];
  return parts.flatMap((part, i) => (i ? [h("wbr"), part] : [part]));
}

/** Names of files without their folders, but for those that several have. */
export class Names {
  constructor() {
    /** @type {Map<string, Set<string>>} */
    this.ids = new Map();
  }

  /** @param {string[]} ids that are shown, too, from now on */
  add(ids) {
    for (const id of ids) {
      const name = baseName(id);
      this.ids.set(name, (this.ids.get(name) || new Set()).add(id));
    }
  }

  /** @param {string} id */
  of(id) {
    const name = baseName(id);
    return (this.ids.get(name)?.size || 0) > 1 ? id.split("/").slice(-2).join("/") : name;
  }
}

/**
 * A small picture of an item, the first lines of its text or, without these, its own tags.
 * @param {Context} context
 * @param {string} id
 * @param {number} size pixels of its longer side
 * @param {any} [item] if it was read already
 */
export function picture(context, id, size, item) {
  const { api, model } = context;
  const frame = h("span.picture");
  const showTags = async () => {
    frame.classList.remove("picture-page");
    frame.classList.add("picture-words");
    clear(frame, model.collection?.media === "audio" && icon("sound"));
    try {
      const { tags } = item || (await api.get(api.model("items", id), { params: { k: 1 } }));
      add(frame, h("span", tags.length ? tags.slice(0, 8).join(", ") : "no tags"));
    } catch {
      add(frame, h("span", id));
    }
  };
  if (!hasPictures(model)) {
    showTags();
    return frame;
  }
  const path = item?.thumbnail || `${api.model("media", id)}?size=${size}`;
  if (model.collection.media === "text") {
    frame.classList.add("picture-page");
    // For eyes only: the name of the item stands beside it, and the whole text on its own page.
    const lines = h("span.page-lines", { aria_hidden: "true", dir: "auto" });
    frame.append(lines);
    api.text(path).then((text) => lines.append(firstLines(text)), showTags);
    return frame;
  }
  const image = h("img", { alt: "", loading: "lazy", decoding: "async", onerror: showTags });
  frame.append(image);
  api.media(path).then((url) => image.setAttribute("src", url), showTags);
  return frame;
}

/** A text as a tile shows it: without empty lines and signs of headings. @param {string} text */
const firstLines = (text) => text.trim().replace(/\s*\n\s*/g, "\n").replace(/^#+ /gm, "");

/**
 * A text in full, as it is written and never as HTML, which scrolls.
 * @param {string} text
 * @param {string} name
 */
export function textPage(text, name) {
  return h("div.text-page", { tabindex: "0", role: "region", aria_label: name, dir: "auto" }, text);
}

/**
 * Whether a key moves through a text that has the focus, and not from item to item.
 * @param {string} key
 * @param {HTMLElement} target
 */
export function scrollsText(key, target) {
  return (key === "ArrowUp" || key === "ArrowDown") && target.closest(".text-page") !== null;
}

/**
 * An item in full: the picture, the sound, the text, or its tags.
 * @param {Context} context
 * @param {string} id
 * @param {any} [item] if it was read already
 */
export function medium(context, id, item) {
  const { api, model } = context;
  const kind = model.collection?.media;
  if (!["image", "audio", "text"].includes(kind)) return picture(context, id, 256, item);
  const path = item?.media || api.model("media", id);
  if (kind === "text") {
    const page = textPage("", baseName(id));
    api.text(path).then((text) => page.append(text), () => page.replaceWith(missing()));
    return page;
  }
  const element =
    kind === "audio"
      ? h("audio", { controls: true, aria_label: baseName(id) })
      : h("img", { alt: baseName(id) });
  const showMissing = () => element.replaceWith(missing());
  element.addEventListener("error", showMissing);
  api.media(path).then((url) => element.setAttribute("src", url), showMissing);
  return element;
}

const missing = () => h("p.muted", "The file of this item cannot be shown.");
