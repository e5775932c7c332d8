"""Example of a webhook receiver.

It verifies the signature, ignores repeated deliveries, responds immediately and processes events afterwards. It needs Python 3.8
or newer and only the standard library. Copy verify.py unchanged; adapt the rest. Use http.server for trials only: in production,
call verify() from your web framework.
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

MAX_BODY = 1 << 20  # bytes; the largest event contains a call with its transcript, and a transcript has at most 256 KiB
MAX_SEEN = 10_000  # the number of stored delivery ids
SECRET = os.environ.get("WEBHOOK_SECRET", "")

waiting = queue.Queue(maxsize=1000)  # events that wait to be processed
seen = {}  # the delivery ids in the order of their arrival
lock = threading.Lock()


def accept(delivery_id: str, event: dict) -> bool:
    """Queue an event, but only once for each delivery id. Return False if the queue is full.

    If the queue is full, the id is not stored, so that accept queues the event when the sender repeats the delivery. This example
    keeps the queue and the ids in memory. In production, store the event and the id in one transaction of your database.
    Otherwise a crash loses events to which you have already responded with 2xx.
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
    """Process events. Replace it with your code, which can take any time: the response has already been sent."""
    while True:
        event = waiting.get()
        print("received", event["type"], event["id"], event["data"]["call_id"] or "", flush=True)  # None in the event webhook.test


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open for further requests
    timeout = 10  # the timeout in seconds of one read from the connection

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
        if close:  # the connection still contains the body, which was not read
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
    scheme, cert = "http", os.environ.get("TLS_CERT_FILE")  # without a certificate, a proxy must terminate TLS
    if cert:
        scheme, context = "https", ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, os.environ.get("TLS_KEY_FILE"))
        # Do the TLS handshake in the thread of each connection. In this thread, one slow client would block all others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=work, daemon=True).start()
    print("listening on %s://%s:%d/webhooks" % (scheme, *server.server_address[:2]), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
