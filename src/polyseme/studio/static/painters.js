// @ts-check
/**
 * Two ways to put points on a canvas: WebGL2, and canvas 2D where there is no WebGL2.
 *
 * In: points with label ids, colours for the labels, a few lit points with colours of their own,
 * a camera. Out: pixels. Both have `load`, `setColours`, `light`, `draw`, `finish` and `dispose`.
 *
 * Terms: `xy` has x and y of each point in turn, in the map's own coordinates. An `id` is the place
 * of a point's colour among the colours: its label, or its group where it is lit.
 */

/**
 * Which part of the map is seen.
 * @typedef {object} Camera
 * @property {number} cx in the middle, in the map's coordinates
 * @property {number} cy
 * @property {number} scale device pixels for one unit of the map
 * @property {number} width of the canvas, in device pixels
 * @property {number} height
 */
/**
 * How points are drawn.
 * @typedef {object} Look
 * @property {number} n the first so many points are drawn
 * @property {number} size of a point, in device pixels
 * @property {number} alpha its opacity, from 0 to 1
 * @property {number} dim how far points fade to the ground, from 0 to 1
 * @property {number} litSize of a lit point, in device pixels
 */
/** @typedef {[number, number, number]} Rgb from 0 to 1 */
/**
 * Points in the memory of the graphics card.
 * @typedef {object} PointBuffers
 * @property {WebGLVertexArrayObject | null} array how the shader reads the others
 * @property {WebGLBuffer | null} xy
 * @property {WebGLBuffer | null} ids
 */

const PALETTE_WIDTH = 1024; // colours in a row of the texture that has them all
const MOST_SQUARES = 150000; // that canvas 2D draws in a frame
const UNIFORMS = ["centre", "factor", "size", "palette", "ground", "dim", "alpha"];

// Puts a point on the canvas, and looks its colour up.
const VERTEX_SHADER = `#version 300 es
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
  colour = texelFetch(palette, ivec2(int(id) % ${PALETTE_WIDTH}, int(id) / ${PALETTE_WIDTH}), 0).rgb;
}`;

// Draws a point as a disc with a soft edge, or as a square where it is tiny.
const FRAGMENT_SHADER = `#version 300 es
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

/** Draws by WebGL2, up to millions of points. */
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
    this.program = linkProgram(gl);
    /** @type {Record<string, WebGLUniformLocation | null>} */
    this.uniforms = {};
    for (const name of UNIFORMS) this.uniforms[name] = gl.getUniformLocation(this.program, name);
    this.allPoints = makeBuffers(gl, this.program);
    this.litPoints = makeBuffers(gl, this.program);
    this.nLit = 0;
    this.palette = gl.createTexture();
    this.litPalette = gl.createTexture();
    /** What unlit points fade to. @type {Rgb} */
    this.ground = [0.5, 0.5, 0.5];
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA); // the fragment shader multiplies by alpha itself
  }

  /**
   * Take the points.
   * @param {Float32Array} xy
   * @param {Uint32Array} ids of the points' labels
   */
  load(xy, ids) {
    fillBuffers(this.gl, this.allPoints, xy, ids);
  }

  /**
   * @param {Rgb[]} colours of the labels
   * @param {Rgb} ground what unlit points fade to
   */
  setColours(colours, ground) {
    fillTexture(this.gl, this.palette, colours);
    this.ground = ground;
  }

  /**
   * Light points up, over all others.
   * @param {Float32Array} xy
   * @param {Uint32Array} ids of the points' groups
   * @param {Rgb[]} colours of the groups
   */
  light(xy, ids, colours) {
    this.nLit = ids.length;
    fillBuffers(this.gl, this.litPoints, xy, ids);
    fillTexture(this.gl, this.litPalette, colours.length ? colours : [[0, 0, 0]]);
  }

  /**
   * Draw a frame.
   * @param {Camera} camera
   * @param {Look} look
   */
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
    gl.uniform3fv(uniforms.ground, this.ground);
    gl.uniform1i(uniforms.palette, 0);
    gl.bindTexture(gl.TEXTURE_2D, this.palette);
    this.drawPoints(this.allPoints, look.n, look.size, look.alpha, look.dim);
    if (!this.nLit) return;
    gl.bindTexture(gl.TEXTURE_2D, this.litPalette);
    const litAlpha = Math.min(1, 0.35 + 600 / this.nLit); // many of them show through
    this.drawPoints(this.litPoints, this.nLit, look.litSize, litAlpha, 0);
  }

  /**
   * Draw the first points of some buffers; for the other parameters see `Look`.
   * @param {PointBuffers} buffers
   * @param {number} n
   * @param {number} size
   * @param {number} alpha
   * @param {number} dim
   */
  drawPoints(buffers, n, size, alpha, dim) {
    const { gl, uniforms } = this;
    gl.bindVertexArray(buffers.array);
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

/** Return the program of both shaders. @param {WebGL2RenderingContext} gl */
function linkProgram(gl) {
  const program = gl.createProgram();
  for (const [type, source] of /** @type {[number, string][]} */ ([
    [gl.VERTEX_SHADER, VERTEX_SHADER],
    [gl.FRAGMENT_SHADER, FRAGMENT_SHADER],
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

/**
 * Return empty buffers for points, as the vertex shader reads them.
 * @param {WebGL2RenderingContext} gl
 * @param {WebGLProgram} program
 * @returns {PointBuffers}
 */
function makeBuffers(gl, program) {
  const array = gl.createVertexArray();
  const xy = gl.createBuffer();
  const ids = gl.createBuffer();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, xy);
  const placeAttribute = gl.getAttribLocation(program, "at");
  gl.enableVertexAttribArray(placeAttribute);
  gl.vertexAttribPointer(placeAttribute, 2, gl.FLOAT, false, 0, 0);
  gl.bindBuffer(gl.ARRAY_BUFFER, ids);
  const idAttribute = gl.getAttribLocation(program, "id");
  gl.enableVertexAttribArray(idAttribute);
  gl.vertexAttribIPointer(idAttribute, 1, gl.UNSIGNED_INT, 0, 0);
  gl.bindVertexArray(null);
  return { array, xy, ids };
}

/**
 * @param {WebGL2RenderingContext} gl
 * @param {PointBuffers} buffers
 * @param {Float32Array} xy
 * @param {Uint32Array} ids
 */
function fillBuffers(gl, buffers, xy, ids) {
  gl.bindVertexArray(null);
  gl.bindBuffer(gl.ARRAY_BUFFER, buffers.xy);
  gl.bufferData(gl.ARRAY_BUFFER, xy, gl.STATIC_DRAW);
  gl.bindBuffer(gl.ARRAY_BUFFER, buffers.ids);
  gl.bufferData(gl.ARRAY_BUFFER, ids, gl.STATIC_DRAW);
}

/**
 * Fill a texture with colours, row after row, for the vertex shader to look up.
 * @param {WebGL2RenderingContext} gl
 * @param {WebGLTexture | null} texture
 * @param {Rgb[]} colours
 */
function fillTexture(gl, texture, colours) {
  const width = PALETTE_WIDTH;
  const height = Math.max(1, Math.ceil(colours.length / width));
  const bytes = new Uint8Array(4 * width * height);
  colours.forEach(([red, green, blue], i) => {
    bytes.set([red * 255, green * 255, blue * 255, 255], 4 * i);
  });
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, width, height, 0, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
}

/** Draws by canvas 2D: squares, and no more than `MOST_SQUARES` of them. */
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
    this.litIds = new Uint32Array(0);
    /** Colours of the labels, as CSS has them. @type {string[]} */
    this.labelColours = [];
    /** Colours of the groups. @type {string[]} */
    this.groupColours = [];
    this.fadedColour = "#888";
  }

  /** As `GlPainter.load`. @param {Float32Array} xy @param {Uint32Array} ids */
  load(xy, ids) {
    this.xy = xy;
    this.ids = ids;
  }

  /** As `GlPainter.setColours`. @param {Rgb[]} colours @param {Rgb} ground */
  setColours(colours, ground) {
    this.labelColours = colours.map(cssOf);
    this.fadedColour = cssOf(ground);
  }

  /**
   * As `GlPainter.light`.
   * @param {Float32Array} xy
   * @param {Uint32Array} ids
   * @param {Rgb[]} colours
   */
  light(xy, ids, colours) {
    this.litXy = xy;
    this.litIds = ids;
    this.groupColours = colours.map(cssOf);
  }

  /** As `GlPainter.draw`. @param {Camera} camera @param {Look} look */
  draw(camera, look) {
    const { flat, ids, litIds } = this;
    const isFaded = look.dim > 0.5;
    const colourOf = (/** @type {number} */ point) =>
      isFaded ? this.fadedColour : this.labelColours[ids[point]];
    const litColourOf = (/** @type {number} */ point) => this.groupColours[litIds[point]];
    flat.clearRect(0, 0, camera.width, camera.height);
    flat.globalAlpha = look.alpha;
    this.drawSquares(camera, this.xy, Math.min(look.n, MOST_SQUARES), look.size, colourOf);
    flat.globalAlpha = 0.9;
    this.drawSquares(camera, this.litXy, litIds.length, look.litSize, litColourOf);
    flat.globalAlpha = 1;
  }

  /**
   * Draw the first points as squares.
   * @param {Camera} camera
   * @param {Float32Array} xy
   * @param {number} n
   * @param {number} size in device pixels
   * @param {(point: number) => string} colourOf
   */
  drawSquares(camera, xy, n, size, colourOf) {
    let lastColour = "";
    for (let i = 0; i < n; i += 1) {
      const x = (xy[2 * i] - camera.cx) * camera.scale + camera.width / 2;
      const y = camera.height / 2 - (xy[2 * i + 1] - camera.cy) * camera.scale;
      if (x < 0 || y < 0 || x > camera.width || y > camera.height) continue;
      const currentColour = colourOf(i);
      if (currentColour !== lastColour) this.flat.fillStyle = lastColour = currentColour;
      this.flat.fillRect(x - size / 2, y - size / 2, size, size);
    }
  }

  /** Nothing is under way: canvas 2D draws at once. */
  finish() {}

  /** There is nothing to give back. */
  dispose() {}
}

/** Return a colour as CSS has it. @param {Rgb} rgb */
function cssOf(rgb) {
  const levels = rgb.map((share) => Math.round(share * 255));
  return `rgb(${levels.join(" ")})`;
}
