// Package sip tests real telephone calls through the whole stack. An operator adds the trunks, real
// phones (baresip, sipp) call and answer behind a real proxy (kamailio), and the agent's model uses
// the Realtime protocol. The tests check what the customer receives. They share one stack, and each
// test creates its own workspace. The packets of each protocol layer are tested in the packages of
// the dialer.
package sip
