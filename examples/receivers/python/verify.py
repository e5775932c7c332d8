import hashlib
import hmac
import re

TOLERANCE = 300  # seconds that a signature's time may be from ours, either way
FORM = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


class NotTrusted(Exception):
    """Why a webhook cannot be trusted."""


def verify(secret: str, header: str, body: bytes, now: float) -> None:
    """Raise NotTrusted unless the webhook can be trusted.

    The secret is the whole signing_secret, whsec_ included; header is X-Service-Signature, "" when there is none; body is the
    request's body byte for byte as it came, before any decoder has seen it; now is time.time().
    """
    parts = FORM.fullmatch(header)
    if not parts:
        raise NotTrusted("the signature is not of the form t=<unix seconds>,v1=<64 lowercase hex digits>")
    signed_at, claimed = parts.groups()
    mac = hmac.new(secret.encode(), signed_at.encode() + b"." + body, hashlib.sha256)
    if not hmac.compare_digest(mac.hexdigest(), claimed):  # constant time
        raise NotTrusted("the signature does not match the body")
    if abs(int(now) - int(signed_at)) > TOLERANCE:
        raise NotTrusted("the signature's time is more than 300 s from now")
