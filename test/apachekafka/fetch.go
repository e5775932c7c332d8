package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// version is the version of Kafka in pom.xml.
const version = "4.1.1"

//go:embed pom.xml
var pom []byte

//go:embed log4j2.properties
var logging []byte

// downloads is a folder with Kafka's jars in `lib`, the metadata of an empty log in `formatted`,
// and the logging configuration.
type downloads struct{ dir string }

func (f downloads) path(name string) string { return filepath.Join(f.dir, name) }

var errNotFetched = errors.New("apache kafka was not fetched: run `make kafka-fetch`")

func (f downloads) checkDownloads() error {
	if have, err := os.ReadFile(f.path("pom.xml")); err != nil || !bytes.Equal(have, pom) {
		return errNotFetched
	}
	return checkJava()
}

// fetch does nothing if the same artifacts are already in the folder.
func (f downloads) fetch(ctx context.Context) error {
	if err := f.checkDownloads(); err == nil || !errors.Is(err, errNotFetched) {
		return err
	}
	if err := checkJava(); err != nil {
		return err
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New(
			"maven, which downloads Apache Kafka, is not installed: install it (apt-get install maven, brew install maven)",
		)
	}
	if err := os.MkdirAll(filepath.Dir(f.dir), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(f.dir), "apachekafka-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	made := downloads{dir: fresh}
	if err := errors.Join(os.Chmod(fresh, 0o755), os.WriteFile(made.path("pom.xml"), pom, 0o644), os.WriteFile(made.path("log4j2.properties"), logging, 0o644)); err != nil {
		return err
	}
	fmt.Printf("fetching Apache Kafka %s with Maven (once)\n", version)
	cmd := exec.CommandContext(ctx, maven, "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory="+made.path("lib"))
	cmd.Dir = fresh
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Apache Kafka: %w\n%s", err, output)
	}
	b := broker{downloads: made, dir: fresh}
	if err := b.format(ctx, made.path("formatted")); err != nil {
		return err
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return err
	}
	return os.Rename(fresh, f.dir)
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

const oldestJava = 17

func checkJava() error {
	output, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf(
			"apache kafka needs Java, which is not installed: install Java %d or newer "+
				"(apt-get install default-jre-headless maven, brew install openjdk maven)",
			oldestJava,
		)
	}
	if found := javaVersion.FindSubmatch(output); found != nil {
		if major, err := strconv.Atoi(string(found[1])); err == nil && major < oldestJava {
			return fmt.Errorf("this Java is version %d and Apache Kafka %s needs %d or newer", major, version, oldestJava)
		}
	}
	return nil
}
