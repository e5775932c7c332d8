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

// inflicted counts what was done, by target and kind.
type inflicted map[string]map[Kind]int

func (in inflicted) add(f Fault) {
	if in[f.Target] == nil {
		in[f.Target] = map[Kind]int{}
	}
	in[f.Target][f.Kind]++
}

// inflict carries out the plan until ctx ends; every wound is closed when it returns. Blackouts take as long as the stack needs to be there again: what
// follows is put off by that. told hears of each fault as it begins.
func (w *world) inflict(ctx context.Context, plan []Fault, told func(Fault)) (done inflicted, err error) {
	done = inflicted{}
	var mu sync.Mutex
	var open sync.WaitGroup
	began := time.Now()
	for _, f := range plan {
		if !rest(ctx, time.Until(began.Add(f.At))) {
			break
		}
		if f.Kind == Blackout {
			told(f)
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
			hurt, fault := w.hurt(ctx, f, told)
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

// rest waits; false: ctx ended.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// hurt inflicts one fault and heals it. False: there was nobody to hurt.
func (w *world) hurt(ctx context.Context, f Fault, told func(Fault)) (hurt bool, err error) {
	if proxy := w.links[f.Target]; proxy != nil {
		told(f)
		err := wound(proxy, f)
		rest(ctx, f.For)
		return true, errors.Join(err, proxy.Mend())
	}
	pid := w.find(ctx, f)
	if pid == 0 {
		return false, nil
	}
	told(f)
	if f.Kind == Kill {
		return syscall.Kill(pid, syscall.SIGKILL) == nil, nil
	}
	family := stop(pid)
	rest(ctx, f.For)
	if f.Kind == Choke {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, one := range family {
		_ = syscall.Kill(one, syscall.SIGCONT)
	}
	return true, nil
}

func wound(proxy *kit.Proxy, f Fault) error {
	switch f.Kind {
	case Deaf:
		return proxy.Deafen()
	case Mute:
		return proxy.Mute()
	case Slow:
		return proxy.Slow(f.Amount)
	case Tear:
		return proxy.Tear(f.Amount)
	}
	proxy.Cut()
	return nil
}

// find is the id of the fault's process, 0 when it did not come up in time.
func (w *world) find(ctx context.Context, f Fault) (pid int) {
	_ = kit.Until(ctx, 10*time.Second, f.Target+" is there", func() (bool, error) {
		pids := w.running().Processes()[f.Target]
		if len(pids) > 0 {
			pid = pids[f.Replica%len(pids)]
		}
		return pid != 0, nil
	})
	return pid
}

// stop stops a process and its children: those of a Postgres do the work.
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

// blackout kills everything at once and starts it again.
func (w *world) blackout(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stack.Kill()
	up, stop := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	following.Go(func() { w.follow(up) })
	again, err := w.stack.Again(up)
	stop()
	following.Wait()
	if err != nil {
		return fmt.Errorf("start again after a blackout: %w", err)
	}
	w.stack = again
	return nil
}

// follow lets the proxies follow a stack that starts: a port that a killed process still has is not waited for, the stack takes another.
func (w *world) follow(ctx context.Context) {
	for rest(ctx, 50*time.Millisecond) {
		now, err := w.known()
		if err != nil {
			continue // it is being written
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

// resume lets every process of the stack go on that is stopped.
func (w *world) resume() {
	for _, pids := range w.running().Processes() {
		for _, pid := range pids {
			for _, one := range append(children(pid), pid) {
				_ = syscall.Kill(one, syscall.SIGCONT)
			}
		}
	}
}

// heal closes every wound and waits until calls can be placed.
func (w *world) heal(ctx context.Context) error {
	for line, proxy := range w.links {
		if err := proxy.Mend(); err != nil {
			return fmt.Errorf("mend %s: %w", line, err)
		}
	}
	w.resume()
	return w.running().AwaitReady(ctx, 2*time.Minute)
}
