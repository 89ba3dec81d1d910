"use strict";

// Finds pages of a site as Index.Search does in Go: the same words, weights and order.

const stem = (word) => {
  const cut = (ending, instead, least) => {
    if (new TextEncoder().encode(word).length < least + ending.length || !word.endsWith(ending)) return false;
    word = word.slice(0, -ending.length) + instead;
    return true;
  };
  if (!cut("ies", "y", 2) && !word.endsWith("ss") && !word.endsWith("us")) cut("s", "", 3);
  cut("ied", "y", 2) || cut("ing", "", 3) || cut("ed", "", 3);
  cut("e", "", 3);
  return word;
};

const search = (index, query) => {
  let words = (query.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).map(stem);
  const said = words.filter((word) => !index.stop.includes(word));
  if (said.length) words = said;
  const score = new Map();
  words.forEach((word, n) => {
    const best = new Map();
    const weigh = (postings, of) => {
      for (let i = 0; i < postings.length; i += 2) {
        best.set(postings[i], Math.max(best.get(postings[i]) || 0, Math.floor(postings[i + 1] / of)));
      }
    };
    if (Object.hasOwn(index.terms, word)) weigh(index.terms[word], 1);
    if (n === words.length - 1 && word.length > 2) {
      for (const [term, postings] of Object.entries(index.terms)) {
        if (term.startsWith(word) && term !== word) weigh(postings, 4);
      }
    }
    for (const [section, weight] of best) {
      const [sum, found] = score.get(section) || [0, 0];
      score.set(section, [sum + weight, found + 1]);
    }
  });
  const order = [...score].map(([section, [sum, found]]) => [section, Math.floor(sum * found * found / (words.length * words.length))]);
  order.sort(([i, a], [j, b]) => b - a || i - j);
  const seen = new Set();
  return order.filter(([section, n]) => {
    const { page } = index.sections[section];
    return n > 0 && !seen.has(page) && seen.add(page);
  }).slice(0, 10).map(([section]) => index.sections[section]);
};

const make = (tag, attributes, ...children) => {
  const el = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => el.setAttribute(name, value));
  el.append(...children);
  return el;
};

const show = async () => {
  const query = new URLSearchParams(location.search).get("q") || "";
  document.getElementById("q").value = query;
  const index = await (await fetch("search.json")).json();
  const hits = search(index, query);
  document.getElementById("hits").append(
    make("p", {}, hits.length + (hits.length === 1 ? " page" : " pages") + " for “" + query + "”"),
    make("ol", { class: "hits" }, ...hits.map((hit) => make("li", {},
      make("a", { href: hit.url }, hit.heading ? hit.title + ": " + hit.heading : hit.title), make("p", {}, hit.excerpt)))));
};

show().catch((problem) => document.getElementById("hits").append("The index could not be read: " + problem));
