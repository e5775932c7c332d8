"""Example of a webhook receiver: it verifies the signature, ignores repeated deliveries, responds and then processes.

It needs Python 3.8 or newer and its standard library only. verify.py is the part that must be exactly so; the rest is one way
to do it, and http.server is for trying things out: in production, call verify() from the web framework you have.
"""
import json
import os
import queue
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from verify import NotTrusted, verify

MAX_BODY = 1 << 20  # bytes; the largest event is a call with its transcript, cut at 256 KiB
MAX_SEEN = 10_000  # delivery ids remembered
SECRET = os.environ.get("WEBHOOK_SECRET", "")

waiting = queue.Queue(maxsize=1000)  # events that wait for work
seen = {}  # delivery ids in the order they came
lock = threading.Lock()


def accept(delivery_id: str, event: dict) -> bool:
    """Queue an event once per delivery id; False when there is no room, and nothing is remembered then, so the retry counts.

    Both live in memory here: store event and id in one transaction of your database and no crash loses what you answered 2xx to.
    """
    with lock:
        if delivery_id in seen:
            print("repeat", event["type"], event["id"], flush=True)
            return True
        try:
            waiting.put_nowait(event)
        except queue.Full:
            return False
        seen[delivery_id] = True
        if len(seen) > MAX_SEEN:
            del seen[next(iter(seen))]
        return True


def work() -> None:
    """Where your own code goes: it may take its time, the answer is long out."""
    while True:
        event = waiting.get()
        print("received", event["type"], event["id"], event["data"]["call_id"] or "", flush=True)  # null in webhook.test


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again
    timeout = 10  # seconds that a read may wait

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != "/webhooks":
            self.answer(404, "nothing is here", close=True)
        elif "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self.answer(411, "the body's length is missing", close=True)
        elif len(length) > 9 or int(length) > MAX_BODY:
            self.answer(413, "the body is too large", close=True)
        else:
            self.take(self.rfile.read(int(length)))

    def take(self, body: bytes) -> None:
        try:
            verify(SECRET, self.headers.get("X-Service-Signature", ""), body, time.time())
            event = json.loads(body)
        except (NotTrusted, ValueError) as fault:
            return self.answer(400, str(fault))
        if not accept(self.headers.get("X-Service-Delivery-Id", ""), event):
            return self.answer(503, "busy: try again")
        self.answer(204)

    def answer(self, status: int, text: str = "", close: bool = False) -> None:
        self.send_response(status)
        if close:  # what was not read cannot be skipped
            self.send_header("Connection", "close")
        if status != 204:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_) -> None:
        pass


def main() -> None:
    if not SECRET.startswith("whsec_"):
        sys.exit("WEBHOOK_SECRET must be the whole signing_secret, whsec_ included")
    server = ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8443"))), Receiver)
    scheme, cert = "http", os.environ.get("TLS_CERT_FILE")  # without one, a proxy in front ends TLS
    if cert:
        scheme, context = "https", ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, os.environ.get("TLS_KEY_FILE"))
        # Shake hands in the connection's own thread: here, one slow client would keep out all others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=work, daemon=True).start()
    print("listening on %s://%s:%d/webhooks" % (scheme, *server.server_address[:2]), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
