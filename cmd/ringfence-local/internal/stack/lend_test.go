package stack

import (
	"os"
	"testing"
)

func TestDataParent_DurableDataIsOnDisk(t *testing.T) {
	if got, want := dataParent(true), os.TempDir(); got != want {
		t.Errorf("dataParent(durable) = %s, want %s", got, want)
	}
}

func TestDataParent_TestDataIsInMemoryIfEnoughMemoryIsFree(t *testing.T) {
	if FreeSpace(sharedMemory) < minSharedMemory {
		t.Skipf("%s has less than %d bytes of free space", sharedMemory, minSharedMemory)
	}
	if got := dataParent(false); got != sharedMemory {
		t.Errorf("dataParent(not durable) = %s, want %s", got, sharedMemory)
	}
}
