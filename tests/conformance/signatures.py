"""Signatures of ferry and of the reference implementation of OpenSSF Model Signing (model-signing) verify each other.

Random folders, curves and options, keys and certificates. Both sign; both verify the right folder, and neither a folder with one
change: a byte, a file more, a file less, a name, another key, a byte of the signature.
"""
import pathlib
import random
import shutil
import subprocess

import common
from common import Ferry, Wrong

CURVES = {"P-256": "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1"}


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Keys:
    """A pair of keys of a curve, and a certificate for signing below a root of its own."""

    def __init__(self, folder, curve):
        folder.mkdir(parents=True)
        self.private, self.public = folder / "key.pem", folder / "key.pub.pem"
        self.root, self.certificate = folder / "root.pem", folder / "leaf.pem"
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-out", self.private)
        openssl("pkey", "-in", self.private, "-pubout", "-out", self.public)
        root_key = folder / "root.key.pem"
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", root_key)
        openssl("req", "-x509", "-new", "-key", root_key, "-subj", "/CN=root", "-days", "3650", "-out", self.root,
                "-addext", "keyUsage=critical,keyCertSign", "-addext", "basicConstraints=critical,CA:TRUE")
        request, extensions = folder / "request.pem", folder / "extensions"
        extensions.write_text("keyUsage=critical,digitalSignature\nextendedKeyUsage=codeSigning\nbasicConstraints=critical,CA:FALSE\n"
                              "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
        openssl("req", "-new", "-key", self.private, "-subj", "/CN=signer", "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.root, "-CAkey", root_key, "-CAcreateserial", "-days", "3650",
                "-extfile", extensions, "-out", self.certificate)
        for key in (self.private, root_key):
            key.chmod(0o600)


def random_folder(folder, choose):
    """Files of all sizes, also empty ones, in folders, with names in several scripts."""
    names = ["model.safetensors", "config.json", "a b.txt", "ü/ñ.bin", "deep/er/x", "empty", ".hidden", "z" * 100, "数据/权重.bin"]
    for name in choose.sample(names, choose.randint(2, len(names))):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty" else choose.randbytes(choose.choice((1, 100, 70000))))
    return folder


def reference_signs(folder, signature, keys, certified, ignored):
    import model_signing
    hashing = model_signing.hashing.Config().set_ignored_paths(paths=[*ignored, signature], ignore_git_paths=True)
    config = model_signing.signing.Config().set_hashing_config(hashing)
    if certified:
        config.use_certificate_signer(private_key=keys.private, signing_certificate=keys.certificate, certificate_chain=[keys.root])
    else:
        config.use_elliptic_key_signer(private_key=keys.private)
    config.sign(folder, signature)


def reference_verifies(folder, signature, keys, certified):
    """Whether it does; a refusal of any kind is a no."""
    import model_signing
    config = model_signing.verifying.Config()
    if certified:
        config.use_certificate_verifier(certificate_chain=[keys.root])
    else:
        config.use_elliptic_key_verifier(public_key=keys.public)
    try:
        config.verify(folder, signature)
        return True
    except Exception:  # it raises ValueError and others, also of the libraries below it
        return False


def ferry_signs(folder, signature, keys, certified, ignored):
    words = ["--certificate", keys.certificate, "--chain", keys.root] if certified else []
    words += [word for path in ignored for word in ("--ignore-paths", path.relative_to(folder))]
    Ferry("sign", folder, "--key", keys.private, "-o", signature, *words).ends_with(0)


def ferry_verifies(folder, signature, keys, certified):
    words = ["--trust-anchor", keys.root] if certified else ["--public-key", keys.public]
    return Ferry("check", folder, "--signature", signature, *words).ends_with(0, 1, 3, 4).code == 0


def changes(choose, folder, ignored):
    """Every way to change a signed folder, as {name: what does it}."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.stat().st_size and p not in ignored]
    victim = choose.choice(files)

    def flip():
        content = bytearray(victim.read_bytes())
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        victim.write_bytes(content)
    return {"a bit": flip, "a file more": lambda: (folder / "more").write_bytes(b"x"), "a file less": victim.unlink,
            "a name": lambda: victim.rename(victim.with_name("other name"))}


def agree(promise, number, curve, certified, signs):
    """One folder, signed by one side; both sides judge it and its changes."""
    choose = random.Random(f"{promise.seed} {number}")
    base = promise.folder / str(number)
    folder = random_folder(base / "model", choose)
    signature, keys = base / "model.sig", Keys(base / "keys", curve)
    ignored = [folder / "left out"] if choose.random() < 0.5 else []
    for path in ignored:
        path.write_bytes(b"not signed")
    signs(folder, signature, keys, certified, ignored)
    expect(folder, signature, keys, certified, True, "the right folder")
    for name in changes(choose, folder, ignored):
        copy = base / "changed"
        shutil.copytree(folder, copy)
        left_out = [copy / path.name for path in ignored]
        changes(random.Random(choose.random()), copy, left_out)[name]()
        expect(copy, signature, keys, certified, False, name)
        shutil.rmtree(copy)
    expect(folder, signature, Keys(base / "other keys", curve), certified, False, "another key")
    for path in ignored:
        path.write_bytes(b"may change")
    expect(folder, signature, keys, certified, True, "a change of what is left out")
    content = bytearray(signature.read_bytes())
    place = content.index(b'"payload"') + 40
    content[place] = ord("A") if content[place] != ord("A") else ord("B")
    signature.write_bytes(content)
    expect(folder, signature, keys, certified, False, "a byte of the payload")
    return "9 verdicts of both sides"


def expect(folder, signature, keys, certified, good, what):
    for side, verifies in (("ferry", ferry_verifies), ("model-signing", reference_verifies)):
        if verifies(folder, signature, keys, certified) != good:
            raise Wrong(f"{side} {'does not verify' if good else 'verifies'}: {what}")


def main():
    promise = common.Promise(__doc__)
    number = 0
    for _ in range(1 if promise.sample else 4):
        for curve in CURVES:
            for certified in (False, True):
                for name, signs in (("ferry", ferry_signs), ("model-signing", reference_signs)):
                    number += 1
                    how = "certificate" if certified else "key"
                    promise.case(f"{number}: {name} signs, {curve}, {how}", agree, promise, number, curve, certified, signs)
    promise.finish()


if __name__ == "__main__":
    main()
