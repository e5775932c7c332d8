// Live regions: elements with an id and data-live. After an event, the page is read again and the
// regions are replaced. data-live lists the starts of event types ("call.", "webhook_"); empty: all
// events. data-live-call names a call: other calls do not refresh the region.

// At most 4 updates per second. The gateway permits 1,200 requests per minute to a session. So a page
// that needs many requests is read less often: together, updates send at most 10 requests per second.
const shortest = 250;
const perRequest = 100;
let interval = shortest;

let running = false;
let wanted = [];
let last = 0;

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
  setTimeout(update, Math.max(0, last + interval - Date.now()));
}

async function update() {
  const events = wanted;
  wanted = [];
  try {
    const regions = [...document.querySelectorAll("[data-live]")].filter((r) => events.some((e) => concerns(r, e)));
    if (regions.length > 0 && !document.hidden) {
      await replace(regions);
    } else if (regions.length > 0) {
      document.addEventListener("visibilitychange", () => refreshRegions({ all: true }), { once: true });
    }
  } catch {
    // the next event tries again
  } finally {
    last = Date.now();
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

async function replace(regions) {
  const response = await fetch(location.href, { headers: { "RF-Background": "1" }, cache: "no-store" });
  if (response.status === 401) {
    location.reload();
    return;
  }
  interval = Math.max(shortest, perRequest * Number(response.headers.get("RF-Cost") ?? 0));
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const region of regions) {
    const next = fresh.getElementById(region.id);
    if (!next) continue;
    Idiomorph.morph(region, next, {
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
  document.dispatchEvent(new CustomEvent("regions:replaced"));
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
