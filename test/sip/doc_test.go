// Package sip holds the tests of real telephone calls through the whole stack: trunks as the operator sets them up, SIP and RTP, persons at real phones (baresip, sipp)
// behind a real proxy (kamailio), an agent whose model speaks the Realtime protocol, and what the customer sees of it. One stack is shared; each test brings its
// own workspace. What each layer does with each packet is tested where the layer is.
package sip
