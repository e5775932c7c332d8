//go:build !peers

package peertest

const enabled = false
