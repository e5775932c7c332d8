// Search in the pages: each section of a page is one entry of search.json.

const form = document.getElementById("search");
const input = form.elements.q;
const results = document.getElementById("results");
const most = 12;

let entries;
async function load() {
  if (!entries) {
    const response = await fetch(form.dataset.root + "search.json");
    entries = (await response.json()).map((entry) => ({
      ...entry,
      title: entry.title,
      head: (entry.page + " " + entry.title).toLowerCase(),
      body: entry.text.toLowerCase(),
    }));
  }
  return entries;
}

// score returns 0 if a word is missing. A word in a heading counts ten times as much as one in the text.
function score(entry, words) {
  let sum = 0;
  for (const word of words) {
    const inHead = entry.head.includes(word);
    const inBody = entry.body.split(word).length - 1;
    if (!inHead && inBody === 0) return 0;
    sum += (inHead ? 10 : 0) + Math.min(inBody, 5);
  }
  return sum;
}

function excerpt(entry, word) {
  const at = Math.max(0, entry.body.indexOf(word) - 40);
  return (at > 0 ? "…" : "") + entry.text.slice(at, at + 140);
}

async function show() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    results.hidden = true;
    return;
  }
  const all = await load();
  const found = all.map((entry) => ({ entry, score: score(entry, words) })).filter((one) => one.score > 0);
  found.sort((a, b) => b.score - a.score);
  results.replaceChildren(...found.slice(0, most).map(({ entry }) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = form.dataset.root + entry.url;
    link.textContent = entry.page === entry.title ? entry.title : entry.page + ": " + entry.title;
    const text = document.createElement("small");
    text.textContent = excerpt(entry, words[0]);
    link.append(text);
    item.append(link);
    return item;
  }));
  if (found.length === 0) {
    const item = document.createElement("li");
    item.textContent = "Nothing found.";
    results.replaceChildren(item);
  }
  results.hidden = false;
}

input.addEventListener("input", show);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  results.querySelector("a")?.click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  }
  if (event.key === "Escape") results.hidden = true;
});
document.addEventListener("click", (event) => {
  if (!form.contains(event.target)) results.hidden = true;
});
