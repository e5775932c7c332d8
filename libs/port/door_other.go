//go:build !linux

package port

import "errors"

func (*Door) turnAway() error { return errors.ErrUnsupported }

func (*Door) someWait() bool { return false }
