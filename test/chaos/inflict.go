package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ringfence.dev/test/kit"
)

type faultCounts map[string]map[Kind]int

func (in faultCounts) add(f Fault) {
	if in[f.Target] == nil {
		in[f.Target] = map[Kind]int{}
	}
	in[f.Target][f.Kind]++
}

// injectPlan injects the faults of the plan until ctx ends. When it returns, all faults are
// repaired. A blackout lasts until the stack has started again, which delays the later faults.
func (w *testStack) injectPlan(ctx context.Context, plan []Fault, report func(Fault)) (done faultCounts, err error) {
	done = faultCounts{}
	var mu sync.Mutex
	var open sync.WaitGroup
	began := time.Now()
	for _, f := range plan {
		if !sleep(ctx, time.Until(began.Add(f.At))) {
			break
		}
		if f.Kind == Blackout {
			report(f)
			open.Wait()
			before := time.Now()
			if err = errors.Join(err, w.blackout(ctx)); err != nil {
				break
			}
			done.add(f)
			began = began.Add(time.Since(before))
			continue
		}
		open.Go(func() {
			hurt, fault := w.injectFault(ctx, f, report)
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, fault); hurt {
				done.add(f)
			}
		})
	}
	open.Wait()
	return done, err
}

// sleep waits for d. It returns false if ctx ends before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// injectFault injects one fault and repairs it. If the target was not running, the result is false.
func (w *testStack) injectFault(ctx context.Context, f Fault, report func(Fault)) (hurt bool, err error) {
	if proxy := w.links[f.Target]; proxy != nil {
		report(f)
		err := disturbLink(proxy, f)
		sleep(ctx, f.For)
		return true, errors.Join(err, proxy.Restore())
	}
	pid := w.awaitProcess(ctx, f)
	if pid == 0 {
		return false, nil
	}
	report(f)
	if f.Kind == Kill {
		return syscall.Kill(pid, syscall.SIGKILL) == nil, nil
	}
	family := stop(pid)
	sleep(ctx, f.For)
	if f.Kind == Choke {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, one := range family {
		_ = syscall.Kill(one, syscall.SIGCONT)
	}
	return true, nil
}

func disturbLink(proxy *kit.Proxy, f Fault) error {
	switch f.Kind {
	case Deaf:
		return proxy.DropRequests()
	case Mute:
		return proxy.DropResponses()
	case Slow:
		return proxy.DelayResponses(f.Amount)
	case Tear:
		return proxy.TruncateResponses(f.Amount)
	}
	proxy.Disconnect()
	return nil
}

// awaitProcess returns the process id of the fault's target, or 0 if the process did not start in
// time.
func (w *testStack) awaitProcess(ctx context.Context, f Fault) (pid int) {
	_ = kit.Until(ctx, 10*time.Second, f.Target+" is running", func() (bool, error) {
		pids := w.currentStack().Processes()[f.Target]
		if len(pids) > 0 {
			pid = pids[f.Replica%len(pids)]
		}
		return pid != 0, nil
	})
	return pid
}

// stop stops a process and its children with SIGSTOP, because the children of Postgres do the work.
func stop(pid int) (family []int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	family = append(children(pid), pid)
	for _, one := range family {
		_ = syscall.Kill(one, syscall.SIGSTOP)
	}
	return family
}

func children(pid int) (found []int) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(fields[0]); err == nil {
			found = append(found, child)
		}
	}
	return found
}

func (w *testStack) blackout(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stack.Kill()
	up, stop := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	following.Go(func() { w.retargetProxies(up) })
	again, err := w.stack.Restart(up)
	stop()
	following.Wait()
	if err != nil {
		return fmt.Errorf("start again after a blackout: %w", err)
	}
	w.stack = again
	return nil
}

// retargetProxies directs the proxies to the ports of a stack that is starting. The stack uses
// another port if a killed process still occupies the old port.
func (w *testStack) retargetProxies(ctx context.Context) {
	for sleep(ctx, 50*time.Millisecond) {
		now, err := w.chosenPorts()
		if err != nil {
			continue // the stack is still writing the state file
		}
		for line, proxy := range w.links {
			_, peer, _ := strings.Cut(line, ">")
			if port := now[peer]; port != 0 && port != w.ports[peer] {
				_ = proxy.Retarget(fmt.Sprintf("127.0.0.1:%d", port))
			}
		}
		maps.Copy(w.ports, now)
	}
}

func (w *testStack) resume() {
	for _, pids := range w.currentStack().Processes() {
		for _, pid := range pids {
			for _, one := range append(children(pid), pid) {
				_ = syscall.Kill(one, syscall.SIGCONT)
			}
		}
	}
}

func (w *testStack) heal(ctx context.Context) error {
	for line, proxy := range w.links {
		if err := proxy.Restore(); err != nil {
			return fmt.Errorf("mend %s: %w", line, err)
		}
	}
	w.resume()
	return w.currentStack().AwaitReady(ctx, 2*time.Minute)
}
