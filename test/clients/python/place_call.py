"""Places a call with the generated client and prints its outcome.

The test generates the package ringfence_client and adds it to PYTHONPATH.
"""
import os
import time
from uuid import UUID

from ringfence_client import AuthenticatedClient
from ringfence_client.api.call_requests import read_call_request
from ringfence_client.api.calls import create_call, list_calls, read_call
from ringfence_client.models import (
    Call, CallEvent, CallRequest, CallRequestStatus, CallStatus, CreateCall, DialingActor, ErrorResponse, HeaderValues,
    JSONObject,
)

client = AuthenticatedClient(base_url=os.environ["BASE_URL"], token=os.environ["API_KEY"])
agent = UUID(os.environ["AGENT_ID"])

refused = create_call.sync_detailed(client=client, body=CreateCall(agent_id=agent, to="911"))
assert isinstance(refused.parsed, ErrorResponse), refused
print("refused", refused.status_code.value, refused.parsed.error.code)

variables = JSONObject.from_dict({"first_name": "Ada"})
request = create_call.sync(
    client=client, body=CreateCall(agent_id=agent, to=os.environ["TO"], variables=variables, contact_id=None))
assert isinstance(request, CallRequest), request

while request.status in (CallRequestStatus.QUEUED, CallRequestStatus.DIALING):
    time.sleep(0.2)
    request = read_call_request.sync(request.id, client=client)
    assert isinstance(request, CallRequest), request
assert request.call_id, request

call = read_call.sync(request.call_id, client=client)
assert isinstance(call, Call), call
page = list_calls.sync(client=client, call_request_id=request.id, limit=1)
print("listed", page.data[0].id == call.call_id)

event = CallEvent.from_dict({
    "id": str(request.id), "type": "call.completed", "api_version": "2026-06-04", "created_at": "2026-06-04T09:00:46.733Z",
    "workspace_id": str(request.id), "sequence": 1, "data": call.to_dict(),
})
print("event", event.data.call_id, event.data.summary.next_action if event.data.summary else "no summary")
assert call.status is CallStatus.COMPLETED, call
print("call", call.status.value, call.disposition, call.timings.talk_seconds is not None)
print("named", DialingActor.__name__, HeaderValues.__name__)
