package testkit

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence.dev/libs/recordingstore"
)

// The account and the bucket of the server.
const (
	Region, Bucket       = "test-1", "recordings"
	AccessKey, SecretKey = "test-access", "test-secret-of-the-bucket"
)

// Object is a stored object.
type Object struct {
	Body        []byte
	ContentType string
}

// Server is an S3 server in memory with one bucket. It supports put, get and delete. It rejects
// expired links and requests without a valid signature (AWS Signature Version 4, in the header or
// in a link).
type Server struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]Object
	away    bool
	ahead   time.Duration
}

// New starts a server on 127.0.0.1. The server runs until Close is called.
func New() *Server {
	s := &Server{objects: map[string]Object{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	return s
}

// Storage returns the configuration with which a service uses the server.
func (s *Server) Storage() recordingstore.Storage {
	return recordingstore.Storage{URL: s.URL, Region: Region, Bucket: Bucket, AccessKey: AccessKey, SecretKey: SecretKey}
}

// Away makes every request fail if away is true. Otherwise the server handles requests again.
func (s *Server) Away(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// Later moves the clock of the server forward.
func (s *Server) Later(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// Objects returns all objects by key.
func (s *Server) Objects() map[string]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]Object, len(s.objects))
	for key, object := range s.objects {
		all[key] = object
	}
	return all
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	away, now := s.away, time.Now().Add(s.ahead)
	s.mu.Unlock()
	if away {
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	if err := verifyRequest(r, now); err != nil {
		refuse(w, http.StatusForbidden, "AccessDenied: "+err.Error())
		return
	}
	key, ours := strings.CutPrefix(r.URL.Path, "/"+Bucket+"/")
	if !ours || key == "" {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	switch r.Method {
	case http.MethodPut:
		body, err := readPayload(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.mu.Lock()
		s.objects[key] = Object{body, r.Header.Get("Content-Type")}
		s.mu.Unlock()
		// S3 uses MD5 for the ETag, which is not a secret.
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, md5.Sum(body)))
	case http.MethodGet, http.MethodHead:
		object, found := s.Objects()[key]
		if !found {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("Content-Type", object.ContentType)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object.Body))
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

// readPayload reads a plain body, or a body of signed chunks ("size;chunk-signature=…").
func readPayload(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var whole []byte
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		text, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		size, err := strconv.ParseInt(text, 16, 32)
		if err != nil || size == 0 {
			return whole, err
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		whole = append(whole, chunk[:size]...)
	}
}

// verifyRequest verifies the signature of a request and the expiry of a link.
func verifyRequest(r *http.Request, now time.Time) error {
	query := r.URL.Query()
	var credential, signed, given, sum, at string
	if given = query.Get("X-Amz-Signature"); given != "" {
		credential, signed, at, sum = query.Get("X-Amz-Credential"), query.Get("X-Amz-SignedHeaders"), query.Get("X-Amz-Date"), "UNSIGNED-PAYLOAD"
		query.Del("X-Amz-Signature")
		from, err := time.Parse("20060102T150405Z", at)
		life, fault := strconv.Atoi(query.Get("X-Amz-Expires"))
		if err != nil || fault != nil || !now.Before(from.Add(time.Duration(life)*time.Second)) {
			return errors.New("the link has expired")
		}
	} else {
		for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch name {
			case "Credential":
				credential = value
			case "SignedHeaders":
				signed = value
			case "Signature":
				given = value
			}
		}
		at, sum = r.Header.Get("X-Amz-Date"), r.Header.Get("X-Amz-Content-Sha256")
	}
	if len(at) < 8 || credential != AccessKey+"/"+scope(at) {
		return errors.New("the credential is unknown")
	}
	whole := strings.Join([]string{r.Method, r.URL.EscapedPath(), canonical(query), headers(r, signed), signed, sum}, "\n")
	digest := sha256.Sum256([]byte(whole))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", at, scope(at), hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + SecretKey)
	for _, step := range []string{at[:8], Region, "s3", "aws4_request", text} {
		key = mac(key, step)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(key)), []byte(given)) {
		return errors.New("the signature is invalid")
	}
	return nil
}

func scope(at string) string { return at[:8] + "/" + Region + "/s3/aws4_request" }

func mac(key []byte, text string) []byte {
	sum := hmac.New(sha256.New, key)
	_, _ = sum.Write([]byte(text))
	return sum.Sum(nil)
}

func canonical(query url.Values) string {
	// Encode sorts by name and escapes the character "+" as %2B, so each "+" in its result is a
	// space
	return strings.ReplaceAll(query.Encode(), "+", "%20")
}

func headers(r *http.Request, signed string) string {
	var b strings.Builder
	names := strings.Split(signed, ";")
	slices.Sort(names)
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		b.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	return b.String()
}
