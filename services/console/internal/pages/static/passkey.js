// Sign-in and registration with a passkey. A form with data-passkey has the address of the routes
// start and finish. data-create means a registration.

export function startPasskeys() {
  if (!window.PublicKeyCredential) return;
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      event.stopPropagation();
      run(form);
    });
  }
}

async function run(form) {
  const message = form.querySelector("[data-message]");
  const button = form.querySelector("button");
  message.hidden = true;
  button.disabled = true;
  try {
    const name = form.elements.name?.value ?? "";
    const started = await post(`${form.dataset.passkey}/start`, { name });
    const create = "create" in form.dataset;
    const options = started.options.publicKey;
    const credential = create
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
    const next = encodeURIComponent(form.elements.next?.value ?? "/");
    const finished = await post(`${form.dataset.passkey}/finish?next=${next}`, {
      attempt: started.attempt,
      credential: credential.toJSON(),
    });
    location.assign(finished.next);
  } catch (error) {
    message.textContent = error.refusal || form.dataset.error;
    message.hidden = false;
    button.disabled = false;
  }
}

async function post(address, body) {
  const response = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw Object.assign(new Error("refused"), { refusal: (await response.text()).trim() });
  return response.json();
}
