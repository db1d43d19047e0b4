// @ts-check
/**
 * Two ways to put points on a canvas: WebGL2, and canvas 2D where there is no WebGL2.
 *
 * In: points with label ids, colours for the labels, a few lit points with colours of their own,
 * a camera. Out: pixels. Both have `load`, `colours`, `lit`, `draw`, `finish` and `dispose`.
 */

/**
 * @typedef {{cx: number, cy: number, scale: number, width: number, height: number}} Camera in device pixels
 */
/** @typedef {{n: number, size: number, alpha: number, dim: number, litSize: number}} Look */
/** @typedef {[number, number, number]} Rgb from 0 to 1 */

const WIDTH = 1024; // of the texture of colours

const VERTEX = `#version 300 es
in vec2 at;
in uint id;
uniform vec2 centre;
uniform vec2 factor;
uniform float size;
uniform highp sampler2D palette;
out vec3 colour;
void main() {
  gl_Position = vec4((at - centre) * factor, 0.0, 1.0);
  gl_PointSize = size;
  colour = texelFetch(palette, ivec2(int(id) % ${WIDTH}, int(id) / ${WIDTH}), 0).rgb;
}`;

const FRAGMENT = `#version 300 es
precision highp float;
in vec3 colour;
uniform vec3 ground;
uniform float dim;
uniform float alpha;
uniform float size;
out vec4 pixel;
void main() {
  float a = alpha;
  if (size > 2.5) {
    float r = length(gl_PointCoord - 0.5) * size;
    a *= clamp(size * 0.5 - r + 0.5, 0.0, 1.0);
  }
  pixel = vec4(mix(colour, ground, dim) * a, a);
}`;

export class GlPainter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    const gl = canvas.getContext("webgl2", {
      alpha: true,
      antialias: false,
      depth: false,
      stencil: false,
      powerPreference: "high-performance",
    });
    if (!gl) throw new Error("no WebGL2");
    this.gl = gl;
    this.kind = "webgl2";
    const program = link(gl);
    this.program = program;
    /** @type {Record<string, WebGLUniformLocation | null>} */
    this.uniforms = {};
    for (const name of ["centre", "factor", "size", "palette", "ground", "dim", "alpha"])
      this.uniforms[name] = gl.getUniformLocation(program, name);
    this.all = vertexArray(gl, program);
    this.some = vertexArray(gl, program);
    this.nLit = 0;
    this.palette = gl.createTexture();
    this.litPalette = gl.createTexture();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** @param {Float32Array} xy @param {Uint32Array} ids */
  load(xy, ids) {
    fill(this.gl, this.all, xy, ids);
  }

  /** @param {Rgb[]} colours of the labels @param {Rgb} ground what unlit points fade to */
  colours(colours, ground) {
    texture(this.gl, this.palette, colours);
    this.ground = ground;
  }

  /** @param {Float32Array} xy @param {Uint32Array} groups @param {Rgb[]} colours of the groups */
  lit(xy, groups, colours) {
    this.nLit = groups.length;
    fill(this.gl, this.some, xy, groups);
    texture(this.gl, this.litPalette, colours.length ? colours : [[0, 0, 0]]);
  }

  /** @param {Camera} camera @param {Look} look */
  draw(camera, look) {
    const { gl, uniforms } = this;
    gl.viewport(0, 0, camera.width, camera.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(this.program);
    gl.uniform2f(uniforms.centre, camera.cx, camera.cy);
    gl.uniform2f(
      uniforms.factor,
      (2 * camera.scale) / camera.width,
      (2 * camera.scale) / camera.height,
    );
    gl.uniform3fv(uniforms.ground, this.ground || [0.5, 0.5, 0.5]);
    gl.uniform1i(uniforms.palette, 0);
    gl.bindTexture(gl.TEXTURE_2D, this.palette);
    this.pass(this.all, look.n, look.size, look.alpha, look.dim);
    if (!this.nLit) return;
    gl.bindTexture(gl.TEXTURE_2D, this.litPalette);
    this.pass(this.some, this.nLit, look.litSize, Math.min(1, 0.35 + 600 / this.nLit), 0);
  }

  /**
   * @param {any} points
   * @param {number} n
   * @param {number} size
   * @param {number} alpha
   * @param {number} dim
   */
  pass(points, n, size, alpha, dim) {
    const { gl, uniforms } = this;
    gl.bindVertexArray(points.array);
    gl.uniform1f(uniforms.size, size);
    gl.uniform1f(uniforms.alpha, alpha);
    gl.uniform1f(uniforms.dim, dim);
    gl.drawArrays(gl.POINTS, 0, n);
  }

  /** Wait until all is drawn: reading a pixel makes the driver do so. */
  finish() {
    this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4));
  }

  dispose() {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

/** @param {WebGL2RenderingContext} gl */
function link(gl) {
  const program = gl.createProgram();
  for (const [type, source] of /** @type {[number, string][]} */ ([
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ])) {
    const shader = /** @type {WebGLShader} */ (gl.createShader(type));
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost())
    throw new Error(gl.getProgramInfoLog(program) || "shader");
  return program;
}

/** @param {WebGL2RenderingContext} gl @param {WebGLProgram} program */
function vertexArray(gl, program) {
  const array = gl.createVertexArray();
  const xy = gl.createBuffer();
  const ids = gl.createBuffer();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, xy);
  const location = gl.getAttribLocation(program, "at");
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, 2, gl.FLOAT, false, 0, 0);
  gl.bindBuffer(gl.ARRAY_BUFFER, ids);
  const id = gl.getAttribLocation(program, "id");
  gl.enableVertexAttribArray(id);
  gl.vertexAttribIPointer(id, 1, gl.UNSIGNED_INT, 0, 0);
  gl.bindVertexArray(null);
  return { array, xy, ids };
}

/**
 * @param {WebGL2RenderingContext} gl
 * @param {any} points
 * @param {Float32Array} xy
 * @param {Uint32Array} ids
 */
function fill(gl, points, xy, ids) {
  gl.bindVertexArray(null);
  gl.bindBuffer(gl.ARRAY_BUFFER, points.xy);
  gl.bufferData(gl.ARRAY_BUFFER, xy, gl.STATIC_DRAW);
  gl.bindBuffer(gl.ARRAY_BUFFER, points.ids);
  gl.bufferData(gl.ARRAY_BUFFER, ids, gl.STATIC_DRAW);
}

/** @param {WebGL2RenderingContext} gl @param {WebGLTexture | null} into @param {Rgb[]} colours */
function texture(gl, into, colours) {
  const rows = Math.max(1, Math.ceil(colours.length / WIDTH));
  const bytes = new Uint8Array(4 * WIDTH * rows);
  colours.forEach((rgb, i) => bytes.set([rgb[0] * 255, rgb[1] * 255, rgb[2] * 255, 255], 4 * i));
  gl.bindTexture(gl.TEXTURE_2D, into);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, WIDTH, rows, 0, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
}

/** The same with canvas 2D: squares, and no more than `MOST` of them. */
const MOST = 150000;

export class FlatPainter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.flat = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.kind = "2d";
    /** @type {Float32Array} */
    this.xy = new Float32Array(0);
    /** @type {Uint32Array} */
    this.ids = new Uint32Array(0);
    /** @type {Float32Array} */
    this.litXy = new Float32Array(0);
    /** @type {Uint32Array} */
    this.groups = new Uint32Array(0);
    /** @type {string[]} */
    this.css = [];
    /** @type {string[]} */
    this.litCss = [];
    this.faded = "#888";
  }

  /** @param {Float32Array} xy @param {Uint32Array} ids */
  load(xy, ids) {
    this.xy = xy;
    this.ids = ids;
  }

  /** @param {Rgb[]} colours @param {Rgb} ground */
  colours(colours, ground) {
    this.css = colours.map(cssOf);
    this.faded = cssOf(ground);
  }

  /** @param {Float32Array} xy @param {Uint32Array} groups @param {Rgb[]} colours */
  lit(xy, groups, colours) {
    this.litXy = xy;
    this.groups = groups;
    this.litCss = colours.map(cssOf);
  }

  /** @param {Camera} camera @param {Look} look */
  draw(camera, look) {
    this.flat.clearRect(0, 0, camera.width, camera.height);
    const n = Math.min(look.n, MOST);
    this.flat.globalAlpha = look.alpha;
    this.squares(camera, this.xy, n, look.size, (i) =>
      look.dim > 0.5 ? this.faded : this.css[this.ids[i]],
    );
    this.flat.globalAlpha = 0.9;
    this.squares(
      camera,
      this.litXy,
      this.groups.length,
      look.litSize,
      (i) => this.litCss[this.groups[i]],
    );
    this.flat.globalAlpha = 1;
  }

  /**
   * @param {Camera} camera
   * @param {Float32Array} xy
   * @param {number} n
   * @param {number} size
   * @param {(i: number) => string} colour
   */
  squares(camera, xy, n, size, colour) {
    let lastColour = "";
    for (let i = 0; i < n; i += 1) {
      const x = (xy[2 * i] - camera.cx) * camera.scale + camera.width / 2;
      const y = camera.height / 2 - (xy[2 * i + 1] - camera.cy) * camera.scale;
      if (x < 0 || y < 0 || x > camera.width || y > camera.height) continue;
      const currentColour = colour(i);
      if (currentColour !== lastColour) this.flat.fillStyle = lastColour = currentColour;
      this.flat.fillRect(x - size / 2, y - size / 2, size, size);
    }
  }

  finish() {}

  dispose() {}
}

/** @param {Rgb} rgb */
function cssOf(rgb) {
  return `rgb(${rgb.map((part) => Math.round(part * 255)).join(" ")})`;
}
