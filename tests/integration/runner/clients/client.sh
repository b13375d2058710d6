#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# client.sh CLIENT setup URL: fetches the package "hello" as docs/EGRESS-CLIENTS.md says, into this folder and $HOME.
# client.sh CLIENT run: uses it without a network, and prints its text and the client's version.
set -eu

pip_setup() {
  python3 -m venv .venv
  PIP_INDEX_URL=$1/simple .venv/bin/pip install -q --disable-pip-version-check hello
}
pip_run() {
  .venv/bin/python -c 'import hello; print(hello.text)'
  .venv/bin/pip --version
}

cargo_setup() {
  mkdir -p src .cargo
  printf '[package]\nname = "use"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nhello = "1"\n' >Cargo.toml
  printf 'fn main() { println!("{}", hello::TEXT) }\n' >src/main.rs
  printf '[source.crates-io]\nreplace-with = "own"\n[source.own]\nregistry = "%s"\n' "$1/index.git" >.cargo/config.toml
  cargo fetch -q
}
cargo_run() {
  cargo run -q --offline
  cargo --version
}

go_setup() {
  printf 'module use\n\ngo 1.19\n\nrequire example.org/hello v1.0.0\n' >go.mod
  printf 'package main\n\nimport "example.org/hello"\n\nfunc main() { println(hello.Text) }\n' >main.go
  GOPROXY=$1/go GOSUMDB=off GOFLAGS=-modcacherw go mod download
}
go_run() {
  GOPROXY=off go build -o use . && ./use 2>&1
  go version
}

gem_setup() {
  printf 'source "%s/gems"\ngem "hello"\n' "$1" >Gemfile
  bundle config set --local path vendor
  bundle install --quiet
}
gem_run() {
  bundle exec ruby -e 'require "hello"; puts HELLO'
  bundle --version
}

maven_setup() {
  cat >pom.xml <<POM
<project><modelVersion>4.0.0</modelVersion>
<parent><groupId>org.example</groupId><artifactId>parent</artifactId><version>1.0</version><relativePath/></parent>
<artifactId>use</artifactId><packaging>pom</packaging>
<build><extensions><extension><groupId>org.example</groupId><artifactId>hello</artifactId><version>1.0</version></extension></extensions></build>
</project>
POM
  mkdir -p "$HOME/.m2"
  echo "<settings><mirrors><mirror><id>own</id><mirrorOf>*</mirrorOf><url>$1/maven</url></mirror></mirrors></settings>" >"$HOME/.m2/settings.xml"
  p=${HTTPS_PROXY##*:}
  keytool -importcert -noprompt -alias extra -file "$SSL_CERT_FILE" -keystore "$HOME/trust.p12" -storetype PKCS12 -storepass changeit
  mvn -B -q -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort="$p" -Djavax.net.ssl.trustStore="$HOME/trust.p12" \
    -Djavax.net.ssl.trustStorePassword=changeit validate
}
maven_run() {
  mvn -B -q -o validate
  python3 -c 'import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).read("hello.txt").decode())' \
    "$HOME/.m2/repository/org/example/hello/1.0/hello-1.0.jar"
  mvn -v | head -n 1
}

"$1_$2" "${3-}"
