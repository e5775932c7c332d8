import json
import pathlib
import unittest

from verify import NotTrusted, verify


class Vectors(unittest.TestCase):
    def test_vectors(self):
        vectors = json.loads((pathlib.Path(__file__).parent.parent / "vectors.json").read_text("utf-8"))
        self.assertTrue(vectors)
        for v in vectors:
            with self.subTest(v["name"]):
                try:
                    verify(v["secret"], v["header"], v["body"].encode(), v["now"])
                    valid = True
                except NotTrusted:
                    valid = False
                self.assertEqual(valid, v["valid"])


if __name__ == "__main__":
    unittest.main()
