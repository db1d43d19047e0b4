// @ts-check
/**
 * What an item looks like: its name, a small picture, its picture or sound in full.
 *
 * In: an item's id. Out: elements, and names that are short and yet told apart.
 */

import { add, clear, h } from "./dom.js";
import { icon, plural } from "./parts.js";

/** @typedef {import("./app.js").Context} Context */

/**
 * What things of a kind of media are called, and which files are offered to choose from.
 * @typedef {{item: string, one: string, all: string, accept: string | null}} MediaWords
 */

/** @type {Record<string, MediaWords>} */
const MEDIA = {
  image: { item: "picture", one: "a picture", all: "pictures", accept: "image/*" },
  audio: { item: "sound", one: "a sound", all: "sound", accept: "audio/*" },
};

/** Of the kinds that other packages add. */
const OTHER_MEDIA = { item: "item", one: "a file", all: "files", accept: null };

/** Return the words for a kind of media, such as "image". @param {string} kind */
export const mediaWords = (kind) => MEDIA[kind] ?? OTHER_MEDIA;

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
 * A small picture of an item or, without one, its own tags.
 * @param {Context} context
 * @param {string} id
 * @param {number} size pixels of its longer side
 * @param {any} [item] if it was read already
 */
export function picture(context, id, size, item) {
  const { api, model } = context;
  const frame = h("span.picture");
  const showTags = async () => {
    frame.classList.add("picture-words");
    clear(frame, model.collection?.media === "audio" && icon("sound"));
    try {
      const { tags } = item || (await api.get(api.model("items", id), { params: { k: 1 } }));
      add(frame, h("span", tags.length ? tags.slice(0, 8).join(", ") : "no tags"));
    } catch {
      add(frame, h("span", id));
    }
  };
  if (model.collection?.media !== "image") {
    showTags();
    return frame;
  }
  const image = h("img", { alt: "", loading: "lazy", decoding: "async", onerror: showTags });
  frame.append(image);
  api
    .media(item?.thumbnail || `${api.model("media", id)}?size=${size}`)
    .then((url) => image.setAttribute("src", url), showTags);
  return frame;
}

/**
 * An item in full: the picture, the sound, or its tags.
 * @param {Context} context
 * @param {string} id
 * @param {any} [item] if it was read already
 */
export function medium(context, id, item) {
  const { api, model } = context;
  const kind = model.collection?.media;
  if (kind !== "image" && kind !== "audio") return picture(context, id, 256, item);
  const element =
    kind === "audio"
      ? h("audio", { controls: true, aria_label: baseName(id) })
      : h("img", { alt: baseName(id) });
  const showMissing = () =>
    element.replaceWith(h("p.muted", "The file of this item cannot be shown."));
  element.addEventListener("error", showMissing);
  api
    .media(item?.media || api.model("media", id))
    .then((url) => element.setAttribute("src", url), showMissing);
  return element;
}
