import hashlib
import hmac
import re

TOLERANCE = 300  # how many seconds the time of a signature can be before or after the current time
FORM = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


class NotTrusted(Exception):
    """The webhook is not authentic. The message contains the reason."""


def verify(secret: str, header: str, body: bytes, now: float) -> None:
    """Raise NotTrusted unless the webhook is authentic. body contains the bytes as they arrived."""
    parts = FORM.fullmatch(header)
    if not parts:
        raise NotTrusted("the signature is not of the form t=<unix seconds>,v1=<64 lowercase hex digits>")
    signed_at, claimed = parts.groups()
    mac = hmac.new(secret.encode(), signed_at.encode() + b"." + body, hashlib.sha256)
    if not hmac.compare_digest(mac.hexdigest(), claimed):  # constant time
        raise NotTrusted("the signature does not match the body")
    if abs(int(now) - int(signed_at)) > TOLERANCE:
        raise NotTrusted("the signature's time is more than 300 s from now")
