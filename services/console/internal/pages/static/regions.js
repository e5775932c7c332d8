// Live regions: elements with an id and data-live. After an event, the page is read again and the
// regions are replaced. data-live lists the starts of event types ("call.", "webhook_"); empty: all
// events; "none": no event, only the refresh of all regions. data-live-call names a call: other calls do
// not refresh the region.
//
// Lists of calls: elements with data-calls, which is the start of the ids of their items. data-most is the
// most items of a list. After events of a few calls, only these calls are read, and their items are
// replaced. The whole page follows a little later, for everything else that the events changed.

// At most 4 updates per second. The first one is not delayed.
const mostUpdates = 4;
const second = 1000;

// The gateway permits 1,200 requests per minute to a session. The updates of a page send at most 10
// requests per second on average, and at most 40 at once after a quiet time.
const perSecond = 10;
const mostSaved = 40;
let saved = mostSaved;
let savedAt = Date.now();

// The number of requests of the last update of the whole page, and of one call.
const cost = { page: 8, call: 3 };

// With more calls, reading the whole page is cheaper.
const mostCalls = 3;

// The time between the update of a call and the update of the whole page.
const settleTime = 3000;

let running = false;
let settling = false;
let wanted = [];
let started = []; // the times of the last updates

export function refreshRegions(event) {
  if (event.ended) {
    location.reload();
    return;
  }
  wanted.push(event);
  schedule();
}

function schedule() {
  if (running || wanted.length === 0) return;
  running = true;
  setTimeout(update, waitTime(changedCalls(wanted)));
}

function waitTime(calls) {
  const now = Date.now();
  saved = Math.min(mostSaved, saved + ((now - savedAt) * perSecond) / second);
  savedAt = now;
  const missing = (calls ? cost.call : cost.page) - saved;
  const oldest = started.length < mostUpdates ? 0 : started[0] + second - now;
  return Math.max(0, oldest, (missing / perSecond) * second);
}

async function update() {
  const events = wanted;
  wanted = [];
  started = [...started, Date.now()].slice(-mostUpdates);
  try {
    const calls = changedCalls(events);
    const regions = [...document.querySelectorAll("[data-live]")].filter((r) => events.some((e) => concerns(r, e)));
    if (regions.length === 0) {
      started.pop();
    } else if (document.hidden) {
      document.addEventListener("visibilitychange", () => refreshRegions({ all: true }), { once: true });
    } else if (calls) {
      await replaceCalls(calls);
      settle();
    } else {
      await replaceRegions(regions);
    }
  } catch {
    // the next event tries again
  } finally {
    running = false;
    schedule();
  }
}

function concerns(region, event) {
  if (event.all) return true;
  const { live, liveCall } = region.dataset;
  if (liveCall && event.call_id && event.call_id !== liveCall) return false;
  return live === "" || live.split(" ").some((start) => event.type?.startsWith(start));
}

// The ids of the calls that the events changed. Null if the whole page must be read.
function changedCalls(events) {
  if (!document.querySelector("[data-calls]") || events.some((e) => e.all || !e.call_id)) return null;
  const ids = [...new Set(events.map((e) => e.call_id))];
  return ids.length <= mostCalls ? ids : null;
}

function settle() {
  if (settling) return;
  settling = true;
  setTimeout(() => {
    settling = false;
    refreshRegions({ all: true });
  }, settleTime);
}

// Reads the page again. A page that cannot be read changes nothing.
async function readPage(kind, headers) {
  const response = await fetch(location.href, { headers: { "RF-Background": "1", ...headers }, cache: "no-store" });
  if (response.status === 401) {
    location.reload();
    return null;
  }
  const spent = Number(response.headers.get("RF-Cost") ?? 0);
  saved -= spent;
  if (!response.ok) return null;
  cost[kind] = spent;
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

async function replaceRegions(regions) {
  const fresh = await readPage("page", {});
  if (!fresh) return;
  for (const region of regions) {
    const next = fresh.getElementById(region.id);
    if (next) morph(region, next);
  }
  document.dispatchEvent(new CustomEvent("regions:replaced"));
}

async function replaceCalls(ids) {
  const lists = [...document.querySelectorAll("[data-calls]")];
  const isNew = (id) => lists.every((list) => !document.getElementById(list.dataset.calls + id));
  const headers = { "RF-Calls": ids.join(",") };
  if (ids.some(isNew)) headers["RF-Names"] = "1";
  const fresh = await readPage("call", headers);
  if (!fresh) return;
  for (const list of lists) {
    for (const id of ids) replaceItem(list, fresh, list.dataset.calls + id);
    while (list.children.length > Number(list.dataset.most ?? Infinity)) list.lastElementChild.remove();
  }
  document.dispatchEvent(new CustomEvent("regions:replaced"));
}

// Replaces, adds or removes an item. The ids of calls are ordered by time. The newest call is first.
function replaceItem(list, fresh, id) {
  const old = document.getElementById(id);
  const next = fresh.getElementById(id);
  if (old && next) {
    morph(old, next);
  } else if (old) {
    old.remove();
  } else if (next) {
    next.classList.add("fresh");
    list.insertBefore(next, [...list.children].find((item) => item.id < id) ?? null);
  }
}

function morph(old, next) {
  Idiomorph.morph(old, next, {
    ignoreActiveValue: true,
    callbacks: {
      // The person's open details, what the person typed, and what scripts wrote are kept.
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details")) && name !== "data-sent",
      beforeNodeMorphed: (old) => !(old.nodeType === 1 && (old.hasAttribute("data-keep") || isFilledIn(old))),
      afterNodeAdded: (node) => {
        if (node.nodeType === 1 && node.hasAttribute("data-fresh")) node.classList.add("fresh");
      },
    },
  });
}

// A form with a value that differs from the value that the server sent.
function isFilledIn(node) {
  if (!node.matches("form")) return false;
  return [...node.elements].some((field) => {
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.options) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((o) => o.defaultSelected));
    return "defaultValue" in field && field.value !== field.defaultValue;
  });
}
